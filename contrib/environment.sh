#!/bin/sh
# Make the environment (venv) in a folder, unless it is there; `make` calls it. An environment belongs to the one
# Python that made it: a second one that installs into it leaves half of each.
#
# contrib/environment.sh FOLDER PYTHON chosen|default    "chosen": the user named this Python
set -eu
folder=$1 python=$2 named=$3
# Without the third part of the version, which a system's update may change in place.
which_python='import sys; print("Python %d.%d in %s" % (sys.version_info[:2] + (getattr(sys, "base_prefix", sys.prefix),)))'

refuse() { echo "$*" >&2; exit 1; }

# Written last, so that an incomplete environment has none. The folder is in it, because installed programs and
# the editable install name it: a copy of a clone would test the code of the first.
stamp() { printf '%s\n' "$1, for $(cd "$folder" && pwd -P)"; }

# The Python behind the environment may have been removed or exchanged since.
complete() {
  [ -f "$folder/.made" ] || return 1
  made=$("$folder/bin/python" -c "$which_python" 2>/dev/null) || return 1
  [ "$(stamp "$made")" = "$(cat "$folder/.made")" ]
}

wanted=$("$python" -c "$which_python" 2>/dev/null) || wanted=
clean="make clean"
[ "$folder" = .venv ] || clean="make clean VENV=$folder"

if complete; then
  [ "$made" != "$wanted" ] || exit 0
  text="$folder was made by $made; $python is ${wanted:-not there}."
  [ "$named" = default ] || refuse "$text Remove it with '$clean', or use a second one: VENV=.venv-2"
  echo "$text Continuing with $made; '$clean' removes it." >&2
  exit 0
fi

[ -n "$wanted" ] || refuse "$python does not run: name a Python, 3.11 or newer, with PYTHON=/path/to/python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  refuse "$python is $wanted, but pyworkers needs 3.11 or newer: name one with PYTHON=/path/to/python3"
if [ -n "$(ls -A "$folder" 2>/dev/null)" ] && [ ! -f "$folder/pyvenv.cfg" ]; then
  refuse "$folder is not an environment, and not empty: remove it, or use another with VENV=.venv-2"
fi
echo "Making $folder with $wanted" >&2
"$python" -m venv --clear "$folder"
stamp "$wanted" > "$folder/.made"
