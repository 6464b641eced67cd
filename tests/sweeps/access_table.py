"""Who may do what: one line for each address of the API and for each page that is not public.

A route without a line fails test_access.py: add one, and say whom it lets in. The columns:

  anonymous           has no token
  owner, other        two submitters. The addresses name what the owner has
  organiser, admin, worker
  expired, revoked    ended tokens of an admin, or of a worker for what only workers may do
  disabled            the token of a disabled admin

  .  let in: a GET is answered 2xx, and a change by what its empty body deserves
  1  401    3  403    4  404: not theirs    9  409
  s  303 to the sign-in, for pages only
"""

COLUMNS = (
    "anonymous", "owner", "other", "organiser", "admin", "worker",
    "expired", "revoked", "disabled",
)  # fmt: skip

# anonymous | owner other organiser admin worker | expired revoked disabled
PUBLIC = ". ..... ..."  # asks for no token and looks at none
WHO_AM_I = "1 ..... 111"  # every token tells whose it is
ONE_OWN_TOKEN = "1 .4443 111"
OWN_WEBHOOK = "1 .4443 111"
SUBMITTERS = "1 ....3 111"
NOBODYS = "1 44443 111"
ORGANISERS = "1 33..3 111"
ADMINS = "1 333.3 111"
WORKERS = "1 3333. 111"
NO_PACKAGE = "4 44444 444"  # asks for no token; a claim with logs has no package
NO_FILE = "4 44444 444"  # asks for no token; no benchmark has a file of that name
NO_PROVIDER = "4 44444 444"  # asks for no token; the server has no OpenID provider
CLAIM = "1 99999 999"  # the token of a claim and its fence: any other token is told to stop

API = {
    "GET /api/v1/me": WHO_AM_I,
    "GET /api/v1/me/quota": WHO_AM_I,
    "GET /api/v1/quotas": ORGANISERS,
    "GET /api/v1/quotas/{name}": ORGANISERS,
    "PUT /api/v1/quotas/{name}": ORGANISERS,
    "PATCH /api/v1/me": SUBMITTERS,
    "GET /api/v1/me/tokens": WHO_AM_I,
    "POST /api/v1/me/tokens": SUBMITTERS,
    "DELETE /api/v1/me/tokens/{token_id}": ONE_OWN_TOKEN,
    "GET /api/v1/tokens": ORGANISERS,
    "POST /api/v1/tokens": ORGANISERS,
    "DELETE /api/v1/tokens/{token_id}": ORGANISERS,
    "GET /api/v1/users": ORGANISERS,
    "POST /api/v1/users": ADMINS,
    "GET /api/v1/users/{user_name}": ORGANISERS,
    "PATCH /api/v1/users/{user_name}": ADMINS,
    "POST /api/v1/users/{user_name}/erasure": ADMINS,
    "PUT /api/v1/users/{user_name}/known": ORGANISERS,
    "GET /api/v1/invitations": ORGANISERS,
    "POST /api/v1/invitations": ORGANISERS,
    "DELETE /api/v1/invitations/{invitation_id}": ORGANISERS,
    "GET /api/v1/organisations": ADMINS,
    "POST /api/v1/organisations": ADMINS,
    "GET /api/v1/benchmarks": PUBLIC,
    "POST /api/v1/benchmarks": ORGANISERS,
    "GET /api/v1/benchmarks/{benchmark_id}": PUBLIC,
    "GET /api/v1/benchmarks/{benchmark_id}.toml": PUBLIC,
    "GET /api/v1/benchmarks/{benchmark_id}/convergence": PUBLIC,
    "GET /api/v1/benchmarks/{benchmark_id}/files/{name}": NO_FILE,
    "GET /api/v1/benchmarks/{benchmark_id}/phases": PUBLIC,
    "POST /api/v1/benchmarks/{benchmark_id}/phases": ORGANISERS,
    "GET /api/v1/benchmarks/{benchmark_id}/records": PUBLIC,
    "GET /api/v1/benchmarks/{benchmark_id}/ideas": PUBLIC,
    "GET /api/v1/benchmarks/{benchmark_id}/runs.json": PUBLIC,
    "POST /api/v1/submissions": SUBMITTERS,
    "GET /api/v1/submissions": PUBLIC,
    "GET /api/v1/submissions/{submission_id}": PUBLIC,
    "GET /api/v1/submissions/{submission_id}/runs": PUBLIC,
    "GET /api/v1/submissions/{submission_id}/runs/{index}/curve": PUBLIC,
    "GET /api/v1/submissions/{submission_id}/runs/{index}/log": PUBLIC,
    "GET /api/v1/submissions/{submission_id}/package": NO_PACKAGE,
    "GET /api/v1/submissions/{submission_id}/package/files/{name}": NO_PACKAGE,
    "POST /api/v1/submissions/{submission_id}/verifications": ORGANISERS,  # its owner had a verdict
    "POST /api/v1/submissions/{submission_id}/withdrawal": SUBMITTERS,
    "POST /api/v1/submissions/{submission_id}/reinstatement": ORGANISERS,
    "POST /api/v1/submissions/{submission_id}/retirement": ORGANISERS,
    "POST /api/v1/submissions/{submission_id}/waivers": ORGANISERS,
    "POST /api/v1/submissions/{submission_id}/waivers/{rule}/revocation": ORGANISERS,
    "GET /api/v1/leaderboards/{benchmark_id}": PUBLIC,
    "GET /api/v1/leaderboards/{benchmark_id}.csv": PUBLIC,
    "GET /api/v1/leaderboards/{benchmark_id}.parquet": PUBLIC,
    "GET /api/v1/runs.parquet": PUBLIC,
    "GET /api/v1/leaderboards/{benchmark_id}/preview": ORGANISERS,
    "GET /api/v1/compare": PUBLIC,
    "GET /api/v1/verifications": PUBLIC,
    "POST /api/v1/verifications/batch": ORGANISERS,
    "GET /api/v1/verifications/compare": PUBLIC,
    "GET /api/v1/verifications/{verification_id}": PUBLIC,
    "GET /api/v1/verifications/{verification_id}/race": PUBLIC,
    "GET /api/v1/verifications/{verification_id}/events": PUBLIC,
    "GET /api/v1/verifications/{verification_id}/proof": PUBLIC,
    "POST /api/v1/verifications/{verification_id}/decision": ORGANISERS,
    "POST /api/v1/verifications/{verification_id}/cancellation": ORGANISERS,
    "POST /api/v1/head-to-heads": SUBMITTERS,
    "GET /api/v1/keys": PUBLIC,
    "GET /api/v1/calibrations": PUBLIC,
    "POST /api/v1/calibrations": ORGANISERS,
    "GET /api/v1/calibrations/{calibration_id}": PUBLIC,
    "GET /api/v1/calibrations/{calibration_id}/runs": PUBLIC,
    "GET /api/v1/calibrations/{calibration_id}/compare": PUBLIC,
    "POST /api/v1/calibrations/{calibration_id}/continuation": ORGANISERS,
    "POST /api/v1/calibrations/{calibration_id}/cancellation": ORGANISERS,
    "POST /api/v1/calibrations/{calibration_id}/adoption": ORGANISERS,
    "GET /api/v1/workers": PUBLIC,
    "GET /api/v1/queue": PUBLIC,
    "PATCH /api/v1/queue": ORGANISERS,
    "POST /api/v1/workers/hello": WORKERS,
    "POST /api/v1/workers/probes": WORKERS,
    "POST /api/v1/workers/{name}/next": WORKERS,
    "GET /api/v1/workers/{name}": PUBLIC,
    "GET /api/v1/workers/{name}/probes": PUBLIC,
    "POST /api/v1/workers/{name}/baseline": ORGANISERS,
    "PATCH /api/v1/workers/{name}": ORGANISERS,
    "GET /api/v1/hardware-classes": PUBLIC,
    "POST /api/v1/attempts/{attempt_id}/claim": WORKERS,
    "POST /api/v1/attempts/{attempt_id}/evaluations": CLAIM,
    "GET /api/v1/attempts/{attempt_id}/training": CLAIM,
    "GET /api/v1/attempts/{attempt_id}/task/{name}": CLAIM,
    "POST /api/v1/attempts/{attempt_id}/report": CLAIM,
    "GET /api/v1/prices": PUBLIC,
    "GET /api/v1/prices.csv": PUBLIC,
    "POST /api/v1/prices": ORGANISERS,
    "POST /api/v1/prices/import": ORGANISERS,
    "GET /api/v1/webhooks": SUBMITTERS,
    "POST /api/v1/webhooks": SUBMITTERS,
    "GET /api/v1/webhooks/{webhook_id}": OWN_WEBHOOK,
    "POST /api/v1/webhooks/{webhook_id}/secret": OWN_WEBHOOK,
    "PATCH /api/v1/webhooks/{webhook_id}": OWN_WEBHOOK,
    "POST /api/v1/webhooks/{webhook_id}/test": OWN_WEBHOOK,
    "GET /api/v1/webhooks/{webhook_id}/deliveries": OWN_WEBHOOK,
    "POST /api/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/repeat": OWN_WEBHOOK,
    "DELETE /api/v1/webhooks/{webhook_id}": OWN_WEBHOOK,
    "GET /api/v1/audit": ORGANISERS,
    "GET /api/v1/audit/head": PUBLIC,
    "GET /api/v1/audit/check": ORGANISERS,
    "GET /healthz": PUBLIC,
    "GET /readyz": PUBLIC,
}

# Pages: sessions instead of tokens. A page without a line is everybody's.
SIGNED_IN_PAGE = "s ..... sss"
SUBMITTERS_PAGE = "s ....3 sss"
OWN_PAGE = "s .4443 sss"
ORGANISERS_PAGE = "s 33..3 sss"

CONSOLE = {
    "GET /console/sign-in": PUBLIC,
    "GET /sign-in": PUBLIC,
    "POST /console/sign-in": "1 11111 111",  # without a token in the form
    "GET /console/sign-in/with": NO_PROVIDER,
    "GET /console/sign-in/callback": NO_PROVIDER,
    "POST /console/sign-out": WHO_AM_I,
    "GET /console": SIGNED_IN_PAGE,
    "GET /account": SIGNED_IN_PAGE,
    "POST /account/display-name": SUBMITTERS,
    "POST /account/erasure": SUBMITTERS,
    "POST /account/tokens": SUBMITTERS,
    "POST /account/tokens/{token_id}/revoke": ONE_OWN_TOKEN,
    "GET /console/submissions": ORGANISERS_PAGE,
    "GET /console/benchmarks": ORGANISERS_PAGE,
    "POST /console/benchmarks": ORGANISERS,
    "GET /console/verify": ORGANISERS_PAGE,
    "POST /console/verify": ORGANISERS,
    "POST /console/verifications/{verification_id}/cancel": ORGANISERS,
    "GET /console/head-to-heads": ORGANISERS_PAGE,
    "POST /console/head-to-heads": ORGANISERS,
    "GET /console/decide": ORGANISERS_PAGE,
    "GET /console/decide/{verification_id}": ORGANISERS_PAGE,
    "POST /console/decide/{verification_id}": ORGANISERS,
    "GET /console/calibrations": ORGANISERS_PAGE,
    "POST /console/calibrations": ORGANISERS,
    "GET /console/calibrations/{calibration_id}": ORGANISERS_PAGE,
    "POST /console/calibrations/{calibration_id}/adopt": ORGANISERS,
    "POST /console/calibrations/{calibration_id}/continue": ORGANISERS,
    "POST /console/calibrations/{calibration_id}/cancel": ORGANISERS,
    "GET /console/phases": ORGANISERS_PAGE,
    "POST /console/phases": ORGANISERS,
    "GET /console/leaderboards/{benchmark_id}/preview": ORGANISERS_PAGE,
    "GET /console/workers": ORGANISERS_PAGE,
    "POST /console/workers": ORGANISERS,
    "GET /console/prices": ORGANISERS_PAGE,
    "POST /console/prices": ORGANISERS,
    "GET /console/quotas": ORGANISERS_PAGE,
    "POST /console/quotas": ORGANISERS,
    "GET /submit": SUBMITTERS_PAGE,
    "POST /submit": SUBMITTERS,
    "GET /console/notices": SUBMITTERS_PAGE,
    "POST /console/notices/webhooks": SUBMITTERS,
    "POST /console/notices/mails": SUBMITTERS,
    "POST /console/notices/mails/{mail_id}/end": NOBODYS,
    "GET /console/notices/{webhook_id}": OWN_PAGE,
    "POST /console/notices/{webhook_id}/test": OWN_WEBHOOK,
    "POST /console/notices/{webhook_id}/secret": OWN_WEBHOOK,
    "POST /console/notices/{webhook_id}/enable": OWN_WEBHOOK,
    "POST /console/notices/{webhook_id}/delete": OWN_WEBHOOK,
    "POST /console/notices/{webhook_id}/deliveries/{delivery_id}/resend": OWN_WEBHOOK,
    "GET /console/audit": ORGANISERS_PAGE,
    "GET /console/audit/log.json": ORGANISERS_PAGE,
    "GET /console/tokens": ORGANISERS_PAGE,
    "POST /console/tokens": ORGANISERS,
    "POST /console/tokens/{token_id}/revoke": ORGANISERS,
    "GET /console/invitations": ORGANISERS_PAGE,
    "POST /console/invitations": ORGANISERS,
    "POST /console/invitations/{invitation_id}/revoke": ORGANISERS,
    "GET /console/users": ORGANISERS_PAGE,
    "POST /console/users": ADMINS,
    "GET /console/users/{user_name}": ORGANISERS_PAGE,
    "POST /console/users/{user_name}": ADMINS,
    "POST /console/users/{user_name}/disable": ADMINS,
    "POST /console/users/{user_name}/erase": ADMINS,
    "POST /console/users/{user_name}/enable": ADMINS,
    "POST /console/organisations": ADMINS,
    "POST /submissions/{submission_id}/withdraw": SUBMITTERS,
    "POST /submissions/{submission_id}/waive": ORGANISERS,
    "GET /submissions/{submission_id}/verify": SIGNED_IN_PAGE,
    "POST /submissions/{submission_id}/verify": ORGANISERS,  # its owner had a verdict
}
# Forms that need no session: the address has a secret.
OPEN_FORMS = {
    "POST /join/{code}",
    "POST /mail/{purpose}/{link}",
}
