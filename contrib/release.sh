#!/usr/bin/env bash
# Build what a release publishes, into an empty folder: `contrib/release.sh [FOLDER]`, else dist/.
#
#   pyworkers_server-VERSION.tar.gz, the wheel      as they go to the package index
#   image/requirements.txt                          each package of the image, with its version and its hashes
#   sbom.cdx.json                                   the same packages as they were installed (CycloneDX)
#
# With REPOSITORY=https://HOST/OWNER/NAME, the links of the README lead to the tag of this version there.
# .github/workflows/release.yml runs it, and so does tests/packaging/test_release.py. contrib/release.md has the steps.
set -euo pipefail
cd "$(dirname "$0")/.."
dist=$(realpath --canonicalize-missing "${1:-dist}")
if [ -e "$dist" ] && [ -n "$(ls -A "$dist")" ]; then
  echo "release: $dist is not empty; remove it first" >&2
  exit 2
fi
mkdir -p "$dist/image"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A wheel of the same sources has the same bytes.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
mkdir "$work/source"
git ls-files -z | xargs --null cp --parents --preserve=mode --target-directory "$work/source"
if [ -n "${REPOSITORY:-}" ]; then
  tag=v$(python3 -c 'from pyworkers.version import __version__; print(__version__)')
  contrib/links.sh "$REPOSITORY" "$tag" <README.md >"$work/source/README.md"
fi
python3 -m venv "$work/tools"
"$work/tools/bin/python" -m pip install --quiet 'build>=1.2' 'twine>=6.0' 'pip-tools>=7.5' 'cyclonedx-bom>=7.0'
"$work/tools/bin/python" -m build --outdir "$dist" "$work/source" >"$work/log" || { cat "$work/log" >&2; exit 1; }
"$work/tools/bin/python" -m twine check --strict "$dist"/*.whl "$dist"/*.tar.gz

wheel=("$dist"/*.whl)
version=$(basename "${wheel[0]}" | cut -d- -f2)
echo "pyworkers-server[crypto,fast,http,metrics,types,web]==$version" >"$work/requirements.in"
# With the wheel that was just built: the index does not have it yet.
"$work/tools/bin/python" -m piptools compile --quiet --generate-hashes --strip-extras --no-header --no-annotate \
  --no-emit-options --find-links "$dist" --output-file "$dist/image/requirements.txt" "$work/requirements.in"

python3 -m venv "$work/image"
"$work/image/bin/python" -m pip install --quiet --require-hashes --find-links "$dist" --requirement "$dist/image/requirements.txt"
"$work/image/bin/python" -m pip check
"$work/image/bin/pyworkers" --version
"$work/tools/bin/cyclonedx-py" environment --validate --output-reproducible --output-format JSON \
  --output-file "$dist/sbom.cdx.json" "$work/image"
echo "release: $version is in $dist"
