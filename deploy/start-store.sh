#!/bin/sh
# Starts the store with the key that the server uses, and the bucket if it is not there. Read from a
# file here, the key stands in no description of the container.
set -eu
read_key() {
    sed -n "s/^$1 *= *//p" /run/secrets/store_credentials
}
GARAGE_DEFAULT_ACCESS_KEY=$(read_key aws_access_key_id)
GARAGE_DEFAULT_SECRET_KEY=$(read_key aws_secret_access_key)
export GARAGE_DEFAULT_ACCESS_KEY GARAGE_DEFAULT_SECRET_KEY
exec garage server --single-node --default-bucket
