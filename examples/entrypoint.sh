#!/bin/sh
# Run a command only if vLLM is patched:  entrypoint.sh vllm serve MODEL
# VLLM_PATCH_VERIFY holds what to ask verify for (options, ids), as in "--strict lora-finish-request";
# without it verify asks for all that the catalog has for this vLLM, and all that was applied.
# Name a diff of your own there: an upgraded vLLM has lost the receipt that would tell of it.
set -eu

if [ $# -eq 0 ]; then
    echo "entrypoint.sh: no command to run" >&2
    exit 2
fi

# Not quoted on purpose: several words are several arguments. Standard output is the server's.
# shellcheck disable=SC2086
vllm-patch verify ${VLLM_PATCH_VERIFY:-} >&2 || {
    code=$?
    echo "entrypoint.sh: vllm-patch verify ended with $code; not started: $*" >&2
    exit "$code"
}

# The server takes the place of this shell, so that signals reach it.
exec "$@"
