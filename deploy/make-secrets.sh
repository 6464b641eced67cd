#!/bin/sh
# Makes the secrets of docker-compose.yml, each in a file of its own below secrets/ beside it. What
# is there already is kept. Needs openssl.
set -eu
folder=$(cd "$(dirname "$0")/.." && pwd)/secrets
umask 077
mkdir -p "$folder"
# The files are mounted as they are into containers of several users; nobody else on this host gets
# into the folder.
chmod 0700 "$folder"

keep() {
    if [ -s "$folder/$1" ]; then
        cat >/dev/null
        return
    fi
    cat >"$folder/$1.new"
    chmod 0444 "$folder/$1.new"
    mv "$folder/$1.new" "$folder/$1"
    echo "made secrets/$1"
}

openssl rand -hex 24 | keep postgres_password
openssl rand -hex 24 | keep redis_password
openssl rand -hex 24 | keep metrics_token
openssl rand -hex 32 | keep store_rpc_secret
openssl genpkey -algorithm ed25519 | keep signing_key
keep store_credentials <<END
[default]
aws_access_key_id = GK$(openssl rand -hex 12)
aws_secret_access_key = $(openssl rand -hex 32)
END
