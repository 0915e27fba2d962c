"""The three tables of README, and the tables of whole frames on the page of all measurements."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.publish.text import Block, Column, Table, Text, Values, markdown_table, times
from benchmarks.publish.weights import car

#: Variants of the detector's benchmark: words, and which other is one.
_ON_A_CPU = (
    ("sparse", "**sparse** (float32)", None),
    ("sparse spconv", "sparse on spconv (Native)", "sparse"),
    ("dense", "dense twin", "sparse"),
    ("dense compiled", "dense twin, compiled", "sparse"),
    ("sparse bf16", "sparse, bfloat16", None),
    ("dense bf16", "dense twin, bfloat16", "sparse bf16"),
    ("dense compiled bf16", "dense twin, compiled, bfloat16", "sparse bf16"),
)

#: Cases of the frame's benchmark on a GPU, in words.
_FRAMES = {
    "view": "view of the camera, 18k points, 0.16 m, with a vector for each box",
    "view, refined once": "the same, refined once (`perceive detect --budget-ms`)",
    "whole scan": "whole scan, 116k points",
    "whole scan, all around": "whole scan, 164 m square all around",
    "highway": "highway of 300 m, 614 m square",
    "8 frames a call": "8 frames in one call",
    "pillars of 0.075 m": "pillars of 0.075 m",
    "range x4": "4 times the range both ways, same points",
    "range x4, as full everywhere": "the same, as full everywhere, 283k points",
}


def _detector(values: Values) -> str:
    rows = []
    for name, words, opponent in _ON_A_CPU:
        variant = values["variants"][name]
        over = "1"
        if opponent is not None:
            found = values["ratios"].get(f"{name} / {opponent}")
            ratio = variant["time"]["median_ms"] / values["variants"][opponent]["time"]["median_ms"]
            over = f"{ratio if found is None else found['median']:.1f} x"
            if found is not None:
                over += f" (quartiles {found['lower_quartile']:.1f} to {found['upper_quartile']:.1f})"
        median, memory = variant["time"]["median_ms"], variant["memory"]["delta_mb"]
        rows.append([words, f"{median:.0f}", f"{memory:.0f}", over])
    heads = ["", "median ms", "peak memory of the run, MB", "against sparse of the same precision"]
    return markdown_table(heads, rows)


def _spread(side: Values) -> str:
    return f"{side['p50_ms']:.3f} ({side['p99_ms']:.3f})"


def _frames(values: Values) -> str:
    cases = {case["case"]: case for case in values["cases"]}
    rows = []
    for name, words in _FRAMES.items():
        case = cases[name]
        sparse, dense = case["sides"]["sparse"], case["sides"]["dense twin"]
        taken_ms = [_spread(side) for side in (sparse, dense)]
        if case["batch"] > 1:
            taken_ms = [
                f"{side['p50_ms']:.3f}: {side['frames_per_s']:,} frames/s" for side in (sparse, dense)
            ]
        # A twin that needs no more than the cases before it shows nothing, or less.
        memory = [f"{side['memory_mb']:,.0f}" if side["memory_mb"] > 0 else "–" for side in (sparse, dense)]
        rows.append([words, *taken_ms, times(case["dense_over_sparse"]), " / ".join(memory)])
        if without := case["sides"].get("sparse without vectors"):
            rows.append(["the same without vectors", _spread(without), "", "", ""])
    heads = ["median ms (99th percentile)", "sparse", "dense twin", "times sparse", "memory, MB"]
    return markdown_table(heads, rows)


_SITES = ((3000, 64), (15000, 64), (3000, 128), (15000, 128), (15000, 256), (50000, 256))


def _with_map(side: str) -> Callable[[Values], str]:
    return lambda case: " / ".join(
        f"{case['device_us'][name]['median']:.0f}" for name in (f"{side} + map", side)
    )


_CONVOLUTION = Table(
    "conv-cuda",
    lambda values: [case for case in values["sites"] if (case["sites"], case["channels"]) in _SITES],
    (
        Column("active cells", "sites", ",d"),
        Column("channels", "channels"),
        Column("ours, in a graph", _with_map("ours, graph")),
        Column("ours, eager", _with_map("ours, eager")),
        Column("spconv", _with_map("spconv")),
        Column("spconv-triton", _with_map("spconv-triton")),
    ),
)


def _accuracy(
    folds: Values,
    found: Values,
    weights: Values,
    tracking: Values,
    drive: Values,
    sentences: Values,
    retention: Values,
) -> str:
    cars = {
        name: " / ".join(f"{level:.1f}" for level in row["car_3d"]) for name, row in weights["rows"].items()
    }
    small = weights["rows"]["2:4+int8 tuned"]["file_bytes"] / 1e6
    whole = weights["rows"]["float16"]["file_bytes"] / 1e6
    tracks = tracking["cases"]
    answers = {
        name: f"{100 * part['figures']['right_share']['mean']:.1f} %"
        for name, part in drive["summary"].items()
    }
    # Conversations held out from tuning.
    recall = {side["name"]: side["others"]["recall"] for side in sentences["sides"]}
    asked = sentences["sides"][0]["others"]["questions"]
    words = "the store, `text=` alone"
    (tenth,) = (row for row in retention["shares"] if row["share"] == 0.1)
    strongest = max(set(tenth["sides"]) - {"ours"}, key=lambda name: tenth["sides"][name]["of_oracle"])
    kept = {name: f"{100 * side['of_oracle']:.1f} %" for name, side in tenth["sides"].items()}
    pairs = f"{len(tracking['settings']['sequences'])} KITTI sequences, boxes of PointRCNN"
    moderate = " / ".join(f"{folds['AP40'][label]['3d'][1]:.1f}" for label in folds["AP40"])
    rows = [
        [
            f"{' / '.join(folds['AP40'])}, 3D AP40, moderate",
            f"KITTI, {folds['frames']} frames, cross-validation by drive",
            moderate,
            "not measured for the dense baseline",
        ],
        [
            "Car 3D AP40, shipped weights",
            f"{found['frames']['val']} KITTI frames used in development",
            car(found, "pointpillars-kitti", "val"),
            f"dense baseline: {car(found, 'pointpillars-kitti-dense', 'val')}",
        ],
        [
            f"the detector in {small:.1f} MB",
            "2:4 and int8, fine-tuned",
            cars["2:4+int8 tuned"],
            f"in {whole:.1f} MB: {cars['float32']}",
        ],
        [
            "tracks, sAMOTA, online",
            pairs,
            f"{100 * tracks['online']['samota']:.1f}",
            f"as AB3DMOT is: {100 * tracks['baseline']['samota']:.1f}",
        ],
        [
            "tracks, HOTA, whole recording",
            "the same",
            f"{100 * tracks['global']['hota']:.1f}",
            f"as AB3DMOT is: {100 * tracks['baseline']['hota']:.1f}",
        ],
        [
            "answers right after a week",
            f"{len(drive['seeds'])} simulated towns",
            answers["ours"],
            f"a store of everything: {answers['everything']}",
        ],
        [
            "things said, found in ten, words alone",
            f"LoCoMo, {asked} questions of conversations not used for choosing",
            f"{recall[words]:.3f}",
            f"BM25 of stems without function words: {recall['and by stems']:.3f}",
        ],
        [
            "the same, words and vectors",
            "the same",
            f"{recall['the store, `text=` and `embedding=`']:.3f}",
            f"by reciprocal ranks: {recall['words and vectors by reciprocal ranks']:.3f}",
        ],
        [
            "value kept in a tenth of the space",
            "two simulated months",
            kept["ours"],
            f"{strongest}: {kept[strongest]}",
        ],
    ]
    return markdown_table(["what", "on", "here", "beside it"], rows)


def _gpu(result: Values) -> str:
    """The model of the GPU of a result: its second word."""
    model: str = result["environment"]["hardware"]["gpu"]["model"]
    return model.split()[1]


def _speed(
    frames: Values,
    spmv: Values,
    layers: Values,
    attention: Values,
    tracking: Values,
    calls: Values,
    cpu_calls: Values,
) -> str:
    called = {row["call"]: row for row in calls["calls"]}
    call, stream = called["detector(points)"], called["Detector.stream, a frame"]
    # Rows of several benchmarks may have the same words: the first of them.
    slow = {row["call"]: row for row in reversed(cpu_calls["calls"])}
    on_cpu = slow["detector(points)"]
    halves = slow.get("detector(points), both in bfloat16")
    cases = {case["case"]: case for case in frames["cases"]}

    def frame(name: str, words: str) -> list[str]:
        sparse, dense = (cases[name]["sides"][side]["p50_ms"] for side in ("sparse", "dense twin"))
        over = f"{cases[name]['dense_over_sparse']:.1f}"
        return [words, _gpu(frames), f"{sparse:.3f} ms", f"dense baseline, graph: {dense:.3f} ms", over]

    chosen = spmv["summary"]["chosen format over torch CSR"]
    (layer,) = (
        case
        for case in layers["cases"]
        if (case["out"], case["columns"], case["rows"], case["dtype"]) == (4096, 4096, 4096, "bfloat16")
    )
    (blocks,) = (
        case for case in attention["cases"] if case["key"] == "random-0.1-16384-64-128-bfloat16-forward"
    )
    tracks = {name: tracking["cases"][name]["frames_per_s"] for name in ("online", "baseline")}
    us = {name: blocks["microseconds"][name]["median"] for name in ("ours", "cuDNN")}
    half_rows = []
    if halves is not None:
        dense_ms = halves["value"] * halves["times"]
        half_rows = [
            [
                "the same, both in bfloat16",
                "CPU, 2 cores",
                f"{halves['value']:.0f} ms",
                f"dense baseline, same API: {dense_ms:.0f} ms",
                f"{halves['times']:.1f}",
            ]
        ]
    rows = [
        frame("view", "a frame as a CUDA graph, the camera's view"),
        frame("highway", "a frame as a CUDA graph, 614 m square"),
        [
            "a call: array in, boxes out",
            _gpu(calls),
            f"{call['value']:.2f} ms; streamed {stream['value']:.2f}",
            f"dense baseline, same API: {call['value'] * call['times']:.2f} ms",
            f"{call['times']:.1f}",
        ],
        [
            "the same, both in float32",
            "CPU, 2 cores",
            f"{on_cpu['value']:.0f} ms",
            f"dense baseline, same API: {on_cpu['value'] * on_cpu['times']:.0f} ms",
            f"{on_cpu['times']:.1f}",
        ],
        *half_rows,
        [
            "sparse matrix times vector, chosen format",
            _gpu(spmv),
            f"{len(spmv['cases'])} matrices",
            "torch CSR (cuSPARSE)",
            f"{times(chosen['geometric_mean'])}, worst {times(chosen['worst'])}",
        ],
        [
            "2:4 layer 4096 x 4096, 4,096 rows",
            _gpu(layers),
            "bfloat16",
            "dense",
            f"{layer['over_dense']['median']:.2f}",
        ],
        [
            "attention, a tenth of 16,384² in blocks",
            _gpu(attention),
            f"{us['ours'] / 1e3:.2f} ms",
            f"cuDNN, all of it: {us['cuDNN'] / 1e3:.2f} ms",
            f"{blocks['over_dense']['median']:.1f}",
        ],
        [
            "tracking a frame's cars",
            "CPU, 1 core",
            f"{tracks['online']:,} frames/s",
            f"as AB3DMOT is: {tracks['baseline']:,}",
            f"{tracks['online'] / tracks['baseline']:.1f}",
        ],
    ]
    return markdown_table(["work", "on", "here", "against", "times as fast"], rows)


BLOCKS: dict[str, Block] = {
    "detector-cpu": Text(("detector-cpu",), _detector),
    "frame-cuda": Text(("frame-cuda",), _frames),
    "conv-cuda": _CONVOLUTION,
    "summary-accuracy": Text(
        (
            "folds",
            "weights-cpu",
            "compression-accuracy",
            "tracking-cpu",
            "drive-cpu",
            "sentences-cpu",
            "retention-cpu",
        ),
        _accuracy,
    ),
    "summary-speed": Text(
        (
            "frame-cuda",
            "spmv-cuda",
            "nm_linear-cuda",
            "sparse_attention-cuda",
            "tracking-cpu",
            "calls-cuda",
            "calls-cpu",
        ),
        _speed,
    ),
}
