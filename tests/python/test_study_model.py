# SPDX-License-Identifier: Apache-2.0
"""The model of a study: it finds what made the times, and says so where the points do not show it."""

import math

import numpy as np
import pytest
from forebay.study import fit

SEED = 20


def grid_of_demands():
    iops, link, latency = np.meshgrid([1e4, 3e4, 1e5, 3e5, 1e6, 1e7], [1e8, 1e9, 1e10], [1e-5, 1e-4, 1e-3, 1e-2])
    return {"iops": 1 / iops.ravel(), "link": 1 / link.ravel(), "latency": latency.ravel()}


def random_program(random):
    """Seconds of compute, reads, bytes and the length of the chain, each of which some points of the grid show."""
    return {"compute": 1.0, "iops": 10 ** random.uniform(4.1, 6), "link": 10 ** random.uniform(8.1, 10),
            "latency": 10 ** random.uniform(2.1, 4)}  # fmt: skip


def times(program, demands):
    parts = [np.full(len(demands["iops"]), program["compute"])]
    return np.maximum.reduce(parts + [program[name] * demand for name, demand in demands.items()])


@pytest.mark.parametrize("seed", range(SEED, SEED + 5))
def test_what_made_the_times_is_found_exactly(seed):
    random, demands = np.random.default_rng(seed), grid_of_demands()
    program = random_program(random)
    model = fit(times(program, demands), demands)
    assert {term.name: term.coefficient for term in model.terms if term.found} == pytest.approx(program, rel=1e-9)
    assert model.error_max < 1e-9
    others = max(program["compute"], program["link"] * 1e-10, program["latency"] * 1e-5)
    assert model.knee("iops").demand == pytest.approx(others / program["iops"])


@pytest.mark.parametrize("seed", range(SEED, SEED + 5))
def test_what_made_the_times_is_found_in_noise(seed):
    random, demands = np.random.default_rng(seed), grid_of_demands()
    program = random_program(random)
    noisy = times(program, demands) * np.exp(random.normal(0, 0.03, len(demands["iops"])))
    model = fit(noisy, demands)
    assert {term.name: term.coefficient for term in model.terms if term.found} == pytest.approx(program, rel=0.1)


IOPS = {"iops": [1 / 1000, 1 / 2000, 1 / 4000, 1 / 8000]}


def test_the_knee_is_where_the_bounds_meet():
    model = fit([1.0, 0.5, 0.3, 0.3], IOPS)
    assert 1 / model.knee("iops").demand == pytest.approx(1000 / 0.3)
    assert model.knee("iops").next_bound == "compute"
    assert model.bounds == ("iops", "iops", "compute", "compute")
    assert model.predict({"iops": 1 / 500}) == (pytest.approx(2.0), "iops")
    assert model.predict({}) == (pytest.approx(0.3), "compute")


def test_a_knee_that_no_point_shows_is_said_to_be_beyond_the_grid():
    faster = fit([8.0, 4.0, 2.0, 1.0], IOPS).knee("iops")
    assert (faster.demand, faster.at_most) == (None, 1 / 8000)
    slower = fit([1.0, 1.0, 1.0, 1.0], IOPS).knee("iops")
    assert (slower.demand, slower.at_least) == (None, 1 / 1000)


def test_noise_is_no_bound():
    model = fit([1.01, 0.99, 1.0, 1.01], IOPS)
    assert [term.found for term in model.terms] == [True, False]
    assert model.term("iops").at_most == pytest.approx(1010)


def test_demands_that_rise_together_are_one():
    model = fit([1.0, 0.5, 0.3, 0.3], {**IOPS, "link": [1e-6, 0.5e-6, 0.25e-6, 0.125e-6], "latency": [1e-3] * 4})
    assert model.merged == {"link": "iops", "latency": "compute"}
    assert model.knee("link") is None
    assert model.knee("compute") is None


def test_a_demand_of_nothing_is_left_out():
    model = fit([1.0, 1.0], {"iops": [0.0, 0.0]})
    assert [term.name for term in model.terms] == ["compute"]
    assert model.merged == {}


def test_one_point_is_a_model_too():
    model = fit([2.5], {"iops": [0.001]})
    assert model.predict({}) == (pytest.approx(2.5), "compute")
    assert model.merged == {"iops": "compute"}


def test_a_drive_without_a_bound_takes_part():
    model = fit([1.0, 0.5, 0.3, 0.3], {"iops": [1 / 1000, 1 / 2000, 1 / 8000, 0.0]})
    assert 1 / model.knee("iops").demand == pytest.approx(1000 / 0.3)


def test_the_figures_are_json():
    figures = fit([1.0, 0.5, 0.3, 0.3], IOPS).figures()
    assert figures["terms"]["iops"]["points"] == 2
    assert math.isfinite(figures["error_rms"])
