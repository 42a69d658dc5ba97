"""The systems of the paper's evaluation: equations, encodings, splits and the cache's keys."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.common import paper_networks
from benchmarks.common.dynamics import binding, electrical, glycolysis, polymerization
from benchmarks.common.paper_systems import (
    DATA,
    SYSTEMS,
    TABLES,
    household_table,
    metro_table,
    read,
)
from onnxfde.numbers import Array

PUBLIC_ROWS = {"Abalone": 4_177, "HEPC": 278_861, "Metro": 48_204, "Protein": 45_730}

needs_data = pytest.mark.skipif(
    not DATA.exists(), reason="the public tables are not beside the checkout (shared/data)"
)


def at(*state: float) -> Array:
    return np.array([state])


def test_electrical_network_at_a_point() -> None:
    # v11 1, v21 2, v22 4, v31..v34 0, 1, 2, 3:
    # v11' = 1.1195700850873262 (2 - 1) + 0.5606494502496796 ((2 - 1) + (4 - 1))
    # v21' = -a21, v22' = -3 a22, v31' = 2 a31, v32' = a32, v33' = 2 a33, v34' = a34
    expected = [
        3.3621678860860446,
        -0.5233235724597057,
        -1.5698465748861213,
        1.206603180489998,
        0.6033785530926093,
        1.206650356746594,
        0.6033616699243862,
    ]
    np.testing.assert_allclose(electrical(at(1, 2, 4, 0, 1, 2, 3)), [expected], rtol=0, atol=1e-14)


def test_electrical_network_rests_at_the_supply() -> None:
    np.testing.assert_allclose(electrical(np.full((1, 7), 2.0)), 0, rtol=0, atol=1e-14)


def test_polymerization_at_a_point() -> None:
    # A1 1, A2 2, A1p 3, A2p 4, A1CHCHp 5, A2CHCHp 6, H 7, H2 8, C2H2 9:
    # r1 = 1.0001·1·7 - 0.1·3·8 = 4.6007      r2 = 1.0004·2·7 - 0.1·4·8 = 10.8056
    # q1 = 2.0003·3·9 - 0.2·5 = 53.0081       q2 = 1.9985·4·9 - 0.2·6 = 70.746
    # g1 = 2.9998·5·9 = 134.991               g2 = 3.0010·6·9 = 162.054
    expected = [
        157.4533,  # A1: g2 - r1
        124.1854,  # A2: g1 - r2
        -48.4074,  # A1p: r1 - q1
        -59.9404,  # A2p: r2 - q2
        -81.9829,  # A1CHCHp: q1 - g1
        -91.308,  # A2CHCHp: q2 - g2
        281.6387,  # H: g1 + g2 - r1 - r2
        15.4063,  # H2: r1 + r2
        -420.7991,  # C2H2: -q1 - q2 - g1 - g2
    ]
    found = polymerization(at(1, 2, 3, 4, 5, 6, 7, 8, 9))
    np.testing.assert_allclose(found, [expected], rtol=0, atol=1e-10)


def test_polymerization_conserves_its_rings() -> None:
    states = np.random.default_rng(0).uniform(0, 100, (50, 9))
    np.testing.assert_allclose(polymerization(states)[:, :6].sum(axis=1), 0, rtol=0, atol=1e-9)


def test_polymerization_conserves_its_radicals() -> None:
    # each reaction turns one of Aip, AiCHCHp and H into another of them
    states = np.random.default_rng(1).uniform(0, 100, (50, 9))
    radicals = polymerization(states)[:, 2:7].sum(axis=1)
    np.testing.assert_allclose(radicals, 0, rtol=0, atol=1e-9)


def test_glycolysis_at_a_point() -> None:
    # all species 1, S6 0.52 = K1, so that 1 + (S6/K1)^4 = 2: v = 100·1·0.52/2 = 26
    # k2 S2 (N - S5) = 0, k6 S2 S5 = 12, k3 S3 (A - S6) = 16·3.48 = 55.68, k4 S4 S5 = 100
    expected = [
        -23.5,  # 2.5 - 26
        40.0,  # 52 - 0 - 12
        -55.68,  # 0 - 55.68
        -44.32,  # 55.68 - 100 - 13·0
        -112.0,  # 0 - 100 - 12
        58.6944,  # -52 + 2·55.68 - 1.28·0.52
        -1.8,  # 0.1·13·0 - 1.8
    ]
    found = glycolysis(at(1, 1, 1, 1, 1, 0.52, 1))
    np.testing.assert_allclose(found, [expected], rtol=0, atol=1e-12)


def test_glycolysis_moves_the_reduced_carrier() -> None:
    # S5 0.25: k2 S2 (1 - S5) = 6·2·0.75 = 9, k6 S2 S5 = 12·2·0.25 = 6, k4 S4 S5 = 100·3·0.25 = 75
    # S6 0: v = 0, k3 S3 (4 - 0) = 16·5·4 = 320; κ(S4 - S7) = 13·(3 - 1) = 26
    expected = [2.5, -15.0, -311.0, 219.0, -72.0, 640.0, 0.8]
    found = glycolysis(at(7, 2, 5, 3, 0.25, 0, 1))
    np.testing.assert_allclose(found, [expected], rtol=0, atol=1e-12)


def test_binding_at_a_point() -> None:
    # a..f = 1..6: r1 = 5 - 4 = 1, r2 = 5 - 6 = -1, r3 = 10 - 8 = 2, r4 = 15 - 8 = 7,
    # r5 = 0.5·4·5 - 0.3·6 = 8.2
    expected = [0.0, -1.0, -8.0, 0.8, -17.2, 8.2]
    np.testing.assert_allclose(binding(at(1, 2, 3, 4, 5, 6)), [expected], rtol=0, atol=1e-12)


def test_binding_conserves_both_partners() -> None:
    found = binding(np.random.default_rng(2).uniform(0, 100, (50, 6)))
    scaffold = found[:, [0, 1, 2, 3, 5]].sum(axis=1)
    ligand = found @ [0, 1, 1, 2, 1, 3]
    np.testing.assert_allclose([scaffold, ligand], 0, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["RN", "EN", "POL", "GLY"])
def test_simulated_rows_are_parted_and_scaled(name: str) -> None:
    system = SYSTEMS[name]
    rows = system.rows(3)
    assert [len(x) for x in (rows.x_train, rows.x_val, rows.x_test)] == [21_000, 6_000, 3_000]
    assert [len(y) for y in (rows.y_train, rows.y_val, rows.y_test)] == [21_000, 6_000, 3_000]
    assert rows.x_train.shape[1] == system.inputs
    assert rows.y_train.shape[1] == system.outputs
    assert rows.limits == (0.0, 1.0)
    for scaled in (rows.x_train, rows.y_train):
        assert scaled.dtype == np.float32
        assert (scaled.min(axis=0) == 0).all()
        assert (scaled.max(axis=0) == 1).all()


def test_rows_follow_the_seed() -> None:
    first, again, other = (SYSTEMS["EN"].rows(seed).x_test for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@needs_data
@pytest.mark.parametrize("name", ["Abalone", "HEPC", "Metro", "Protein"])
def test_public_rows_are_counted_parted_and_scaled(name: str) -> None:
    system, rows = SYSTEMS[name], SYSTEMS[name].rows(0)
    count = PUBLIC_ROWS[name]
    train, valid = count * 7 // 10, count // 5
    found = [len(x) for x in (rows.x_train, rows.x_val, rows.x_test)]
    assert found == [train, valid, count - train - valid]
    assert rows.x_train.shape[1] == system.inputs
    assert rows.y_train.shape[1] == system.outputs == 1
    assert (rows.y_train.min(), rows.y_train.max()) == (0.0, 1.0)
    assert rows.limits == (rows.x_train.min(), rows.x_train.max())
    numbers = rows.x_train[:, : TABLES[name].numbers].astype(np.float64)
    np.testing.assert_allclose(numbers.mean(axis=0), 0, rtol=0, atol=1e-5)
    np.testing.assert_allclose(numbers.std(axis=0), 1, rtol=0, atol=1e-5)


METRO = """holiday,temp,rain_1h,snow_1h,clouds_all,weather_main,weather_description,date_time,traffic_volume
None,288.28,0.0,0.0,40,Clouds,scattered clouds,2012-10-02 09:00:00,5545
None,0.0,9831.3,0.0,75,Rain,very heavy rain,2016-07-11 17:00:00,5535
Labor Day,290.0,0.0,0.1,1,Snow,light snow,2015-09-07 00:00:00,1032
"""  # noqa: E501  # the header is UCI's


def test_metro_columns(tmp_path: Path) -> None:
    path = tmp_path / "metro.csv"
    path.write_text(METRO)
    x, y = metro_table(path)
    # hour, weekday, month, temperature, clouds, rain, snow, holiday; 2012-10-02 was a Tuesday
    assert x[0, :8].tolist() == [9, 1, 10, 288.28, 40, 0, 0, 0]
    assert x[1, :8].tolist() == [17, 0, 7, 288.28, 75, 1, 0, 0]  # 0 K is the median
    assert x[2, :8].tolist() == [0, 0, 9, 290.0, 1, 0, 1, 1]
    assert x[:, 8:].argmax(axis=1).tolist() == [1, 6, 8]
    assert x[:, 8:].sum(axis=1).tolist() == [1, 1, 1]
    assert y.tolist() == [[5545], [5535], [1032]]


HOUSEHOLD = """Date;Time;Global_active_power;Global_reactive_power;Voltage;Global_intensity;Sub_metering_1;Sub_metering_2;Sub_metering_3
16/12/2006;17:24:00;4.216;0.418;234.840;18.400;0.000;1.000;17.000
16/12/2006;17:25:00;?;?;?;?;?;?;
17/12/2006;00:30:00;1.5;0.1;240.000;6.000;0.000;0.000;2.000
"""  # noqa: E501  # the header is UCI's


def test_household_columns(tmp_path: Path) -> None:
    path = tmp_path / "household.txt"
    path.write_text(HOUSEHOLD)
    x, y = household_table(path)
    # 16/12/2006 was a Saturday
    assert x.tolist() == [
        [0.418, 234.84, 18.4, 0, 1, 17, 17.4, 5],
        [0.1, 240, 6, 0, 0, 2, 0.5, 6],
    ]
    assert y.tolist() == [[4.216], [1.5]]


def test_a_missing_table_is_named_with_its_page(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"CASP\.csv.*archive\.ics\.uci\.edu/dataset/265"):
        SYSTEMS["Protein"].rows(0, tmp_path)


def test_a_table_as_uci_has_it_is_found(tmp_path: Path) -> None:
    (tmp_path / "abalone.data").write_text("M,1,2,3,4,5,6,7,15\nI,2,3,4,5,6,7,8,9\n")
    x, y = read(TABLES["Abalone"], TABLES["Abalone"].path(tmp_path))
    assert x.tolist() == [[1, 0, 0, 1, 2, 3, 4, 5, 6, 7], [0, 0, 1, 2, 3, 4, 5, 6, 7, 8]]
    assert y.tolist() == [[15], [9]]


@pytest.mark.parametrize(
    ("variant", "expected"),
    [(1, (7, 120, 7)), (2, (7, 120, 7, 120, 7)), (3, (7, *((120, 7) * 4)))],
)
def test_widths_of_the_variants(variant: int, expected: tuple[int, ...]) -> None:
    assert paper_networks.widths(7, 7, variant) == expected


def test_the_cache_tells_networks_apart() -> None:
    made = [("EN", 1, 0), ("EN", 1, 1), ("EN", 2, 0), ("GLY", 1, 0)]
    assert len({paper_networks.cached_path(*it) for it in made}) == len(made)


def test_public_tables_have_one_variant() -> None:
    with pytest.raises(ValueError, match="Abalone has variant 1 only"):
        paper_networks.made_of("Abalone", 2, 0)


def test_rows_are_kept_as_they_were(tmp_path: Path) -> None:
    rows = SYSTEMS["RN"].rows(0)
    paper_networks.save_rows(rows, tmp_path / "rows.npz")
    found = paper_networks.load_rows(tmp_path / "rows.npz")
    for name, values in vars(rows).items():
        np.testing.assert_array_equal(getattr(found, name), values)
