#!/bin/sh
# Installs the vendors' own clients for the tests, by name, into build/clients: openai and anthropic for Python,
# openai for JavaScript; and selenium, which drives the browser that the page is tested in. Does nothing when they are there.
set -eu
cd "$(dirname "$0")/.."
folder=build/clients

if ! [ -f $folder/python.done ]; then
  echo "installing the Python clients openai and anthropic"
  python3 -m venv $folder/venv
  $folder/venv/bin/pip install --quiet --disable-pip-version-check openai anthropic jsonschema
  touch $folder/python.done
fi

if ! [ -f $folder/browser.done ]; then
  echo "installing selenium"
  $folder/venv/bin/pip install --quiet --disable-pip-version-check selenium
  touch $folder/browser.done
fi

if ! [ -f $folder/node.done ]; then
  echo "installing the JavaScript client openai"
  npm install --silent --no-fund --no-audit --prefix $folder openai >/dev/null
  touch $folder/node.done
fi
