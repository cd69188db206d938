#!/usr/bin/env bash
# Installs the real clients of the tests: SDKs for Python in a virtual environment, for Node in a node_modules, both below
# the target directory. Again is cheap: what is there already stays.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
into=${SUREFOOT_CLIENTS:-${CARGO_TARGET_DIR:-$here/../../target}/clients}
mkdir -p "$into/node"

[ -x "$into/venv/bin/pip" ] || python3 -m venv "$into/venv"
"$into/venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/requirements.txt"

cp "$here/package.json" "$here/package-lock.json" "$into/node/"
(cd "$into/node" && npm ci --silent --no-audit --no-fund)

echo "clients are in $into: $("$into/venv/bin/python" -c 'import anthropic, openai; print("python openai", openai.__version__, "anthropic", anthropic.__version__)'), node openai $(node -p "require('$into/node/node_modules/openai/package.json').version")"
