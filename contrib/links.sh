#!/usr/bin/env bash
# Give the relative links of README.md or CHANGELOG.md the addresses of a tag: `contrib/links.sh REPOSITORY TAG <FILE`.
# The package index and the page of a release cannot resolve them, and show no such picture. A link that is an anchor
# alone is one of the README.
set -euo pipefail
exec sed --regexp-extended \
  -e "s#(!\[[^]]*\]\()contrib/#\1$1/raw/$2/contrib/#g" \
  -e "s#\]\(contrib/#]($1/blob/$2/contrib/#g" \
  -e "s|\]\(#|]($1/blob/$2/README.md#|g"
