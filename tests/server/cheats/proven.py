"""Cheats that tests of their own prove: the file and the test, with its case in brackets."""

LIE = "tests/server/test_lying_workers.py::test_a_report_that_is_a_lie_is_refused"
OVER_HTTP = "tests/server/test_lies_over_http.py::test_a_lie_is_not_published"
CONFIRMING = "tests/server/test_workers.py::"
BARRED = "tests/server/test_owners.py::"
CROSS = "tests/server/test_cross_checks.py::"

PROVEN = {
    "C21": CONFIRMING + "test_a_claim_of_another_machine_is_refused",
    "C22": CONFIRMING + "test_a_rented_instance_is_described_as_it_is",
    "C25": "tests/rules/test_judge.py::test_a_loss_below_the_entropy_is_a_proven_cheat",
    "C35": "tests/rules/test_cross_check.py::test_bfloat16_inside_a_claim_of_float32_is_rejected",
    "C41": "tests/server/test_first_place.py::test_a_challenger_that_is_not_ahead_keeps_its_place",
    "C42": "tests/server/test_head_to_heads.py::test_tries_of_an_organisation_count_together",
    "C43": "tests/rules/test_statistics.py::"
    "test_five_runs_and_three_values_on_both_sides_share_a_number",
    "C44": "tests/server/test_verifications.py::"
    "test_the_seal_is_public_at_once_and_opened_at_the_end",
    "C47": "tests/sweeps/test_hostile_text.py::test_no_text_becomes_markup",
    "C50": OVER_HTTP + "[calibrated]",
    "C51": OVER_HTTP + "[one_for_all]",
    "C52": LIE + "[the claim's own]",
    "C53": LIE + "[posted late in one burst]",
    "C54": OVER_HTTP + "[compressed]",
    "C55": LIE + "[9 points under what was posted]",
    "C56": "tests/rules/test_replay.py::test_preparation_takes_at_most_twice_the_calibrated",
    "C57": OVER_HTTP + "[stretched]",
    "C60": CONFIRMING + "test_a_faster_machine_under_the_name_is_as_wrong_as_a_slower_one",
    "C61": BARRED + "test_rivals_do_not_replay",
    "C62": BARRED + "test_a_failed_attempt_does_not_go_back_to_that_owner_while_there_is_another",
    "C65": "tests/sweeps/test_proofs.py::test_tampered_proof_fails_at_its_check",
    "C74": "tests/server/test_accounts.py::test_a_revoked_token_takes_all_that_descend_from_it",
    "C77": OVER_HTTP + "[stretched]",
    "C78": OVER_HTTP + "[earlier_curves]",
    "C79": OVER_HTTP + "[never_posted]",
    "C80": "tests/server/test_attempts.py::test_report_names_its_worker_and_a_possible_system",
    "C83": CROSS + "test_without_a_second_owner_the_verdict_is_left_open",
    "C84": CROSS + "test_own_worker_confirms_no_claim",
    "C86": CROSS + "test_runs_that_one_worker_calls_failed",
    "C87": CROSS + "test_precision_that_one_worker_found_rejects_nobody",
    "C88": CROSS + "test_worker_that_changes_its_class_is_checked",
    "C91": LIE + "[reached at no evaluation]",
    "C92": "tests/rules/test_claim.py::test_settings_are_compared_as_they_are_trained",
    "C93": LIE + "[0.2 s off each run]",
    "C94": "tests/rules/test_text.py::test_a_wrong_value_is_shown_with_its_file_and_field",
    "C95": "tests/server/test_latency.py::test_a_strangers_worker_alone_decides_about_no_latency",
    "C97": "tests/server/test_workers.py::test_a_name_that_looks_like_anothers_is_refused",
    "C98": "tests/rules/test_same_program.py::test_names_of_its_own_make_no_other_program",
    "C99": "tests/server/test_duplicates.py::"
    "test_settings_are_compared_and_trained_to_three_digits",
}
