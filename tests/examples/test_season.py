"""The season of examples/season: packages whose manifests form one chain, an idea each."""

from pathlib import Path

from finishline.cli.season import season_packages
from finishline.client.packages import read_folder
from finishline.rules.trainings.package import read_package

SEASON = Path(__file__).parents[2] / "examples" / "season"


def test_each_package_of_the_season_is_based_on_the_one_before():
    folders = sorted(path for path in SEASON.iterdir() if path.is_dir())
    assert len(folders) >= 6
    parent, wrong = None, []
    for folder in folders:
        files, unread = read_folder(folder)
        package, problems = read_package(files, benchmarks=["teacher"])
        assert package is not None, problems
        assert unread == []
        if package.manifest.based_on != parent:
            wrong.append(f'{folder.name}/training.toml: expected based_on = "{parent}"')
            break  # This package's own hash will change with the line.
        parent = f"sha256:{package.sha256}"
    assert wrong == []


def test_the_season_follows_the_version_of_an_environment_that_is_here():
    asked = list(season_packages(SEASON, environment="numpy-2.9"))

    assert {package.manifest.environment for package in asked} == {"numpy-2.9"}
    parents = [f"sha256:{package.sha256}" for package in asked]
    assert [package.manifest.based_on for package in asked] == [None, *parents[:-1]]
    assert parents[0] != f"sha256:{next(season_packages(SEASON)).sha256}"
