#!/usr/bin/env bash
# Everything that only a GPU shows, in one run of less than 8 minutes that needs no network.
# PYTHON names the interpreter; by default that of .venv, else python3.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-.venv/bin/python}
[ -n "${PYTHON:-}" ] || [ -x "$python" ] || python=python3
if ! "$python" -c 'import torch, transformers, pydantic'; then
    echo "$python lacks one of torch, transformers, pydantic: name another in PYTHON" >&2
    exit 1
fi
export HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1
exec timeout 480 "$python" -m benchmarks.gpu_check "$@"
