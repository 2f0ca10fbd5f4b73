#!/bin/sh
# Found a trial federation: an admin, and sites ID=HOST:PORT with metrics on METRICS (host; ports 9101, 9102, ...). For
# trials alone: real sites make their keys themselves, and the admin's key is on no site's machine.
#
#   found-trial.sh DIRECTORY EXPERIMENT METRICS ID=HOST:PORT ...
set -eu
directory=$1 experiment=$2 metrics=$3
shift 3
if [ -f "$directory/membership.json" ]; then
    echo "$directory: founded already"
    exit 0
fi
mkdir -p "$directory"
facade network admin -o "$directory/admin.key"
admin=$(facade network public "$directory/admin.key")
port=9100
for site in "$@"; do
    id=${site%%=*}
    port=$((port + 1))
    facade node init --id "$id" --address "${site#*=}" --listen "${LISTEN:-0.0.0.0}:${site##*:}" \
        --metrics-listen "$metrics:${METRICS_PORT:-$port}" --admin "$admin" --home "$directory/$id"
done
# word splitting is meant: one .join file a site
# shellcheck disable=SC2046
facade network build $(for site in "$@"; do echo "$directory/${site%%=*}/${site%%=*}.join"; done) \
    --experiment "$experiment" --key "$directory/admin.key" -o "$directory/membership.json"
for site in "$@"; do
    cp "$directory/membership.json" "$directory/${site%%=*}/"
done
