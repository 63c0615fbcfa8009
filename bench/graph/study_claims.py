# SPDX-License-Identifier: Apache-2.0
"""What a paper on graphs in external memory (arXiv 2312.03113) says, beside what the study found."""

from study_gates import span
from study_tables import (
    PUBLISHED_FACTORS,
    Study,
    amplification,
    factors,
    geometric_mean,
    knees,
    late_share,
    predictions,
    request_bytes,
    table,
)


def _study(step: str) -> str:
    return f"`bench/graph/study.py OUT {step}`"


GATES = "`scripts/external_gates run DIR`"
EQUATIONS = "`pytest tests/python/test_external_model.py`"


def _reads(study: Study) -> str:
    rows = [row for row in study.gates("reads") if row["reader"] == "warp"]
    shares = span((row["ratio"] for row in rows), lambda ratio: f"{100 * ratio:.1f} %")
    searches = predictions(study.rows("kinds25"))
    held = sum(p.holds for p in searches)
    return f"random reads by warps reach {shares} of T; {held} of {len(searches)} searches take D / T within 15 %"


def _little(study: Study) -> str:
    found = span((k.in_flight / k.outstanding for k in knees(study) if k.entry == "wide_id"), "{:.3f}".format)
    sssp = span((k.in_flight / k.outstanding for k in knees(study) if k.entry == "weighted"), "{:.3f}".format)
    return f"T · L / d at 33.2 us is {found} of the N that was set for BFS, {sssp} for SSSP"


def _slope(study: Study) -> str:
    rows = [r for r in study.gates("reads") if r["name"].startswith("slope 48 M/s") and r["reader"] == "warp"]
    below = span((row["measured"] / 1e6 for row in rows if row["bytes"] < 500), "{:.1f}".format)
    at = next(row for row in rows if row["bytes"] == 512)
    return f"{below} M/s below the knee; reads of 512 B move {at['bytes_per_second'] / 1e9:.2f} of 24 GB/s"


def _best_request(study: Study) -> str:
    rows = [row for row in study.rows("paper25") if row["place"] == "drive, a quarter in the cache"]
    rates = span((row["reads"] / row["median_s"] / 1e6 for row in rows), "{:.2f}".format)
    moved = span((row["bytes_read"] / row["median_s"] / 1e9 for row in rows), "{:.1f}".format)
    return f"{rates} M pages of 4 KiB a second, which are {moved} GB/s"


def _requirements(study: Study) -> str:
    parts = [
        f"{k.link}: {1e6 * k.knee_s:.2f} us measured, {1e6 * k.model_knee_s:.2f} by the equation"
        for k in knees(study)
        if k.entry == "wide_id" and k.link != "gen5x16"
    ]
    return "; ".join(parts) + f" (d = {knees(study)[0].request_bytes:.1f} B)"


def _request(study: Study) -> str:
    rows = [row for row in study.rows("paper25") if row["place"] == "host"]
    return ", ".join(
        f"{request_bytes(row):.1f} B ({row['graph']}, {'SSSP' if row['entry'] == 'weighted' else 'BFS'})"
        for row in rows
    )


def _alignment(study: Study) -> str:
    by_entry = {
        entry: [p.ratio for p in predictions(study.rows("alignment23")) if p.row["entry"] == entry]
        for entry in ("wide_id", "weighted")
    }
    bfs, sssp = (span(ratios, "{:.3f}".format) for ratios in by_entry.values())
    return f"the time is that of the bytes read over W, from 16 B to 4 KiB: {bfs} of it for BFS, {sssp} for SSSP"


def _page_amplification(study: Study) -> str:
    rows = study.rows("paper25")
    cached = [row for row in rows if row["place"] == "drive, a quarter in the cache"]
    bfs, sssp = (
        span((amplification(row) for row in cached if (row["entry"] == "weighted") == weighted), "{:.1f}".format)
        for weighted in (False, True)
    )
    without = next(r for r in study.rows("alignment23") if r["alignment"] == 4096)
    return f"{amplification(without):.1f} without a cache; with a quarter of the lists in it {bfs} (BFS), {sssp} (SSSP)"


def _times_at(study: Study, link: str, latencies: tuple[float, ...]) -> str:
    rows = {
        row["latency_us"]: row["median_s"]
        for row in study.rows("latency23")
        if (row["entry"], row["link"]) == ("wide_id", link) and row["outstanding"] is not None
    }
    first = rows[min(rows)]
    return ", ".join(f"{rows[at] / first:.2f} at {at:g} us" for at in latencies)


def _unlimited(study: Study) -> str:
    bfs, sssp = (
        span((k.unlimited_spread for k in knees(study) if k.entry == entry), "{:.2f}".format)
        for entry in ("wide_id", "weighted")
    )
    return f"without the limit, 33.2 us take {bfs} of the time of 1.2 us for BFS, {sssp} for SSSP"


def _gen5(study: Study) -> str:
    knee = next(k for k in knees(study) if (k.entry, k.link) == ("wide_id", "gen5x16"))
    return f"{1e6 * knee.knee_s:.2f} us measured, {1e6 * knee.model_knee_s:.2f} by the equation, at 48 GB/s"


def _host(study: Study) -> str:
    rows = [r for r in study.gates("machine") if r["kind"] == "plain_chase" and r["data"] == "pinned"]
    return f"{span((row['measured'] / 1e3 for row in rows), '{:.2f}'.format)} us, from 64 MiB to 8 GiB"


def _machine_limit(study: Study) -> str:
    rows = {(r["region_bytes"] >> 20, r["bytes"]): r for r in study.gates("machine") if r["kind"] == "plain_reads"}
    small, large = rows[256, 32], rows[4096, 128]
    return (
        f"this GPU has {small['outstanding']:,.0f} reads of 32 B in flight over 256 MiB, and "
        f"{large['outstanding']:.0f} of 128 B over 4 GiB"
    )


def _factor(study: Study, place: str) -> str:
    rows = [factor for _, factor in factors(study)[place]]
    mean = geometric_mean(rows)
    ratio = mean / PUBLISHED_FACTORS[place]
    return f"{mean:.2f} ({span(rows, '{:.2f}'.format)}), {ratio:.2f} of what is published"


def _drive(study: Study) -> str:
    rows = [factor for _, factor in factors(study)["drive"]]
    return f"without a cache {geometric_mean(rows):.1f} ({span(rows, '{:.1f}'.format)})"


def claims(study: Study) -> str:
    """The claims, each with what was found."""
    late = max(late_share(row) or 0 for row in study.rows("paper25"))
    modelled = "confirmed for modelled memory"
    rows = [
        (
            "equations 1 and 2: t = D / T, T = min(S · d, N · d / L, W)",
            _reads(study),
            modelled,
            f"{GATES}, {_study('kinds25')}",
        ),
        ("equation 3: N · d = T · L", _little(study), modelled, _study("latency23")),
        (
            "equation 4: a slope of 48 M/s with N = 768 is a latency of 16 us; the knee is at 500 B",
            _slope(study),
            modelled,
            GATES,
        ),
        (
            "equation 5: drives of 6 MIOPS fill a link of 24 GB/s with requests of 4 kB",
            _best_request(study),
            "confirmed for an emulated drive",
            _study("paper25"),
        ),
        (
            "equation 6: the link stays full up to 2.87 us with PCIe 4.0 and N = 768, up to 1.91 us with 3.0 and 256",
            _requirements(study),
            f"{modelled}; both limits are higher, because d is",
            f"{_study('latency23')}, {EQUATIONS}",
        ),
        (
            "the mean request of zero-copy is 89.6 B, from shares that are assumed",
            _request(study),
            "refuted: it is longer, and depends on the graph",
            _study("paper25"),
        ),
        (
            "observation 1: a smaller alignment lowers the read amplification, and the time with it",
            _alignment(study),
            modelled,
            _study("alignment23"),
        ),
        (
            "pages of 4 kB read up to 4 times what is needed; the size of the cache is not stated",
            _page_amplification(study),
            "confirmed for BFS, refuted for SSSP, with this cache",
            f"{_study('paper25')}, {_study('alignment23')}",
        ),
        (
            "observation 2: a latency of some microseconds costs nothing",
            f"gen4x16: {_times_at(study, 'gen4x16', (2.2, 3.2, 5.2))}, of the time at 1.2 us",
            f"{modelled}, up to the knee",
            _study("latency23"),
        ),
        (
            "memory behind CXL is as fast as host memory up to about 2 us, with PCIe 3.0",
            f"gen3x16: {_times_at(study, 'gen3x16', (1.7, 2.2, 3.2))}, of the time at 1.2 us",
            modelled,
            _study("latency23"),
        ),
        (
            "the limit N belongs to reads of memory; drives do not have it",
            _unlimited(study),
            modelled,
            _study("latency23"),
        ),
        (
            "equation 6 for PCIe 5.0, which the paper does not have",
            _gen5(study),
            modelled,
            _study("latency23"),
        ),
        (
            "a GPU reads host memory in 1.2 us",
            _host(study),
            "confirmed for a small region, refuted for a large one",
            GATES,
        ),
        (
            "a GPU has 768 reads in flight with PCIe 4.0 and 256 with PCIe 3.0",
            _machine_limit(study),
            "not testable here: the link is PCIe 5.0",
            GATES,
        ),
        (
            "XLFDD, sixteen fast drives with an alignment of 16 B, takes 1.13 times the time of host memory",
            f"{_factor(study, 'flash')}; at most {100 * late:.2f} % late",
            "confirmed that it is close; the factor is lower, and the drives are modelled",
            _study("paper25"),
        ),
        (
            "BaM, drives of 6 MIOPS with pages of 4 kB and a cache, takes 2.76 times the time of host memory",
            f"{_factor(study, 'drive, a quarter in the cache')}; {_drive(study)}",
            "confirmed in the mean only: each factor rests on the cache",
            _study("paper25"),
        ),
        ("a CXL device adds 0.5 us", "", "not testable here: no CXL device", ""),
        (
            "a CXL device with 128 reads of 64 B in flight gives about 2,500 MB/s with 3 us added",
            "",
            "not testable here: no CXL device",
            "",
        ),
        ("fast flash answers in less than 5 us", "", "not testable here: the drives are modelled", ""),
    ]
    return table(["claim", "ours", "verdict", "command"], map(list, rows))
