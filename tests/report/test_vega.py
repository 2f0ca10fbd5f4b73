import pytest

from facade.report import vega


@pytest.fixture
def cached_bundle(tmp_path, monkeypatch):
    """Reads the script that draws, with a cache of its own; and the list of its makings, which it grows."""
    import vl_convert

    makings = []

    def javascript_bundle(*_, **__):
        makings.append("bundle")
        return "draws </script>"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(vl_convert, "javascript_bundle", javascript_bundle)
    return vega.bundle.__wrapped__, makings


def test_the_script_that_draws_is_put_together_once(cached_bundle):
    bundle, makings = cached_bundle
    assert [bundle(), bundle()] == ["draws <\\/script>"] * 2
    assert len(makings) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-3],
        lambda content: content.replace(b"draws", b"drows"),
        lambda content: b"draws \xff",
        lambda content: content.partition(b"\n")[2],
    ],
)
def test_a_damaged_script_in_the_cache_is_put_together_again(cached_bundle, tmp_path, damage):
    bundle, makings = cached_bundle
    bundle()
    (path,) = (tmp_path / "cache" / "facade").iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert bundle() == "draws <\\/script>"
    assert path.read_bytes() == whole
    bundle()
    assert len(makings) == 2


def test_a_home_that_cannot_be_written_costs_no_report(cached_bundle, tmp_path):
    (tmp_path / "cache").touch()
    assert cached_bundle[0]() == "draws <\\/script>"
