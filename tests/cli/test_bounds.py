import pytest

from initio.cli.bounds import BoundsCommand
from initio.errors import InputError


def test_prints_value_bounds_constants_and_assumptions(capsys: pytest.CaptureFixture[str]) -> None:
    BoundsCommand("mlp:relu,tanh,relu;skips=1", data="digits", batch_size=32, width=64).run()
    text = capsys.readouterr().out
    for part in ("λ_min, infinite width", "mean diagonal", "Theorem 1", "Theorem 2", "Theorem 3", "Schur", "μ1"):
        assert part in text
    assert "VIOLATED  1: every input has norm 1" in text
    assert "N = 32, d⁴ = 16,777,216" in text
    assert "nan" not in text.lower()


def test_only_mlps_have_these_bounds() -> None:
    with pytest.raises(InputError, match="the bounds hold for mlp architectures"):
        BoundsCommand("darts_v2").run()
