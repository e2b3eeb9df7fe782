#!/usr/bin/env bash
# Build the documentation site into build/docs/html, in an environment of its own (build/docs/venv). Warnings are
# errors: a link that leads nowhere, a page in no table of contents, a docstring that cannot be read.
# Arguments go to sphinx-build. $PYTHON names the interpreter of the environment (default python3); $DOCS_VENV another
# folder for it.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

venv=${DOCS_VENV:-build/docs/venv}
if [[ ! -x $venv/bin/sphinx-build ]]; then
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
fi
"$venv/bin/sphinx-build" -W --keep-going --quiet "$@" docs build/docs/html
echo "build/docs/html/index.html"
