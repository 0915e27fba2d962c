"""Recipes: what is understood, and what errors say about the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from sparse_core.merging.recipes.recipe import load_recipe, parse_recipe
from sparse_core.merging.recipes.settings import Setting, count_layers, layer_position, read_setting

TIES: dict[str, Any] = {
    "merge_method": "ties",
    "base_model": "base",
    "models": [
        {"model": "base"},
        {"model": "a", "parameters": {"weight": 0.5, "density": 0.3}},
        {
            "model": "b",
            "parameters": {"weight": [0, 1], "density": [{"filter": "mlp", "value": 0.2}, {"value": 0.8}]},
        },
    ],
    "parameters": {"normalize": False, "int8_mask": True, "lambda": 0.7},
    "dtype": "bfloat16",
}


def changed(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**TIES, **changes}.items() if value is not ...}


def test_a_recipe_of_mergekit() -> None:
    recipe = parse_recipe(TIES)
    assert recipe.method.name == "ties"
    assert [entry.path for entry in recipe.models] == ["a", "b"]
    assert (recipe.base, recipe.dtype, recipe.out) == ("base", torch.bfloat16, None)
    assert (recipe.rule.normalize, recipe.rule.scale, recipe.rule.divides) == (False, 0.7, False)
    assert recipe.notes == ("int8_mask is ignored: masks never take up memory here",)
    first, second = recipe.models
    assert recipe.setting(first, "density", "layers.3.mlp.w", 5, 1.0) == 0.3
    assert recipe.setting(second, "density", "layers.3.mlp.w", 5, 1.0) == 0.2
    assert recipe.setting(second, "density", "layers.3.attention.w", 5, 1.0) == 0.8
    assert recipe.setting(second, "weight", "layers.3.mlp.w", 5, 1.0) == 0.75


def test_gradients_run_over_the_layers() -> None:
    setting = Setting(((None, (0.0, 1.0, 0.5)),))
    found = [setting.at(f"model.layers.{layer}.w", 5) for layer in range(5)]
    assert found == [0.0, 0.5, 1.0, 0.75, 0.5]
    # As in mergekit: all that is outside the layers lies at their beginning, a single layer at the end.
    outside = ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight")
    assert [setting.at(name, 5) for name in outside] == [0.0, 0.0, 0.0]
    assert layer_position("0.weight", 1) == 1.0
    assert count_layers(["a", "h.0.w", "h.11.w", "blocks.3.1.w"]) == 12
    assert read_setting([{"filter": "x", "value": 1}], "here").at("y", 0) is None
    assert read_setting([{"filter": "*", "value": 1}], "here").at("y", 0) == 1.0


def test_slices_over_whole_models() -> None:
    sources = [{"model": name, "layer_range": [0, 4]} for name in ("base", "a")]
    gradient = [{"filter": "attn", "value": [0, 1]}, {"value": 0.5}]
    recipe = parse_recipe(
        {
            "slices": [{"sources": sources}],
            "merge_method": "slerp",
            "base_model": "base",
            "parameters": {"t": gradient},
            "tokenizer_source": "union",
        }
    )
    assert recipe.layer_range == (0, 4)
    assert [entry.path for entry in recipe.models] == ["a"]
    assert recipe.notes == ("tokenizer_source is ignored: tokenizer files are copied from the base",)
    assert recipe.setting(recipe.models[0], "t", "layers.3.attn.w", 4, 0.0) == 1.0


def test_slices_have_parameters_of_their_own() -> None:
    """The closest says it, and the next where no filter of that fits, as in mergekit."""
    sources = [{"model": name, "layer_range": [0, 4]} for name in ("base", "a")]
    near = {"weight": [{"filter": "attn", "value": 0.9}], "normalize": False, "lambda": [1, 2]}
    recipe = parse_recipe(
        {
            "slices": [{"sources": sources, "parameters": near}],
            "merge_method": "ties",
            "base_model": "base",
            "parameters": {"weight": 0.2, "normalize": True, "lambda": 3, "density": 0.4},
        }
    )
    entry = recipe.models[0]
    found = [recipe.setting(entry, "weight", name, 4, 0.0) for name in ("layers.0.attn.w", "layers.0.mlp.w")]
    assert found == [0.9, 0.2]
    assert recipe.setting(entry, "density", "layers.0.attn.w", 4, 1.0) == 0.4
    assert recipe.rule.normalize is False
    assert [recipe.rule_for(f"layers.{layer}.w", 4).scale for layer in (0, 3)] == [1.0, 2.0]


def test_lambda_may_differ_over_tensors() -> None:
    setting = {"lambda": [{"filter": "mlp", "value": [0.5, 1.5]}, {"filter": "head", "value": 0.1}]}
    recipe = parse_recipe(changed(parameters=setting))
    names = ("layers.0.mlp.w", "layers.4.mlp.w", "head.w", "layers.0.attn.w")
    assert [recipe.rule_for(name, 5).scale for name in names] == [0.5, 1.5, 0.1, 1.0]
    assert recipe.unused(["layers.0.mlp.w"]) == [
        "parameters.lambda: filter 'head' is part of no tensor's name"
    ]
    one = parse_recipe(changed(parameters={"lambda": {"filter": "*", "value": 0.3}}))
    assert one.rule.scale == 0.3


def test_numbers_that_yaml_takes_for_text() -> None:
    assert read_setting(yaml.safe_load("1e-3"), "here").choices == ((None, (0.001,)),)
    assert read_setting(["0.5", 1], "here").choices == ((None, (0.5, 1.0)),)
    karcher = changed(merge_method="karcher", models=[{"model": "a"}], parameters={"tol": "1e-6"})
    assert parse_recipe(karcher).rule.option("tol") == 1e-6


def test_filters_that_fit_nothing_are_reported() -> None:
    names = ["layers.0.mlp.w", "layers.0.attn.w"]
    assert parse_recipe(TIES).unused(names) == []
    weight = [{"filter": "mpl", "value": 1}, {"filter": "attn", "value": 1}]
    recipe = parse_recipe(changed(models=[{"model": "a", "parameters": {"weight": weight}}]))
    assert recipe.unused(names) == [
        "a: parameters.weight: filter 'mpl' is part of no tensor's name",
        "a has no part in 1 of 2 tensors (first: 'layers.0.mlp.w'): no filter of its weight fits them",
    ]


def test_parameters_of_other_methods_are_noted() -> None:
    recipe = parse_recipe(changed(merge_method="task_arithmetic"))
    assert "density is ignored: task_arithmetic has no such parameter" in recipe.notes
    one = [{"model": "a", "parameters": {"weight": 1}}, {"model": "base", "parameters": {"weight": 0.3}}]
    given = {"t": 0.5, "normalize": True, "lambda": 0.5, "rescale": True, "seed": 1, "eps": 1e-3}
    notes = parse_recipe(changed(merge_method="slerp", models=one, parameters=given, name="mine")).notes
    assert notes == (
        "name is ignored: nothing is called by it",
        *(f"{name} is ignored: slerp has no such parameter" for name in given if name != "t"),
        "weight is ignored: slerp has no such parameter",
    )
    notes = parse_recipe(changed(models=one)).notes
    assert "weight of base is ignored: it is the base" in notes


def test_rescale_means_what_it_means_to_mergekit() -> None:
    def rescale(method: str, **parameters: Any) -> str:
        models = [{"model": name, "parameters": {"weight": 1}} for name in "ab"]
        return parse_recipe(changed(merge_method=method, models=models, parameters=parameters)).rule.rescale

    assert [rescale(name) for name in ("ties", "breadcrumbs", "dare_ties", "della")] == ["none"] * 2 + [
        "l1"
    ] * 2
    assert [rescale(name, rescale=True) for name in ("ties", "breadcrumbs_ties", "dare_linear")] == ["l1"] * 3
    assert rescale("dare_linear", rescale=False) == "none"
    assert rescale("dare_linear", rescale="probability") == "probability"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "expected a mapping with merge_method and models, got list"),
        (None, "got nothing: the file is empty"),
        (changed(merge_method="nearswap"), "merge_method: mergekit's nearswap is not supported"),
        (changed(merge_method=["ties"]), r"unknown method \['ties'\]"),
        (changed(parameters={"weight": True}), "expected a number or a list of numbers, got True"),
        (changed(merge_method="breadcrumbs", parameters={"gamma": 1}), "from 0 to below 1, got 1"),
        (changed(merge_methd="ties"), r"unknown field 'merge_methd' \(did you mean 'merge_method'\?\)"),
        (changed(merge_method=...), "merge_method is missing"),
        (changed(merge_method="teis"), r"merge_method: unknown method 'teis' \(did you mean 'ties'\?\)"),
        (changed(merge_method="dare_tie"), "did you mean 'dare_ties'"),
        (changed(base_model=...), "base_model is missing: ties needs one"),
        (changed(models=...), "expected either models"),
        (changed(models=[]), "models: expected a list"),
        (changed(models=[{"model": "base"}]), "no model to merge besides the base"),
        (changed(models=["a"]), r"models\[0\]: expected a mapping with 'model', got 'a'"),
        (changed(models=[{"modle": "a"}]), r"models\[0\]: unknown field 'modle' \(did you mean 'model'\?\)"),
        (changed(models=[{"parameters": {}}]), r"models\[0\]: model is missing"),
        (changed(models=[{"model": 3}]), r"models\[0\].model: expected a path, got 3"),
        (changed(models=[{"model": "a"}]), r"models\[0\].parameters.weight is missing \(a\)"),
        (
            changed(parameters={"densty": 1}),
            r"parameters: unknown parameter 'densty' \(did you mean 'density'\?\)",
        ),
        (
            changed(parameters={"density": 1.5}),
            r"parameters.density: expected a number above 0 and at most 1, got 1.5",
        ),
        (changed(parameters={"density": 0}), "got 0"),
        (
            changed(parameters={"weight": "x"}),
            "parameters.weight: expected a number or a list of numbers, got 'x'",
        ),
        (changed(parameters={"weight": []}), "got an empty list"),
        (changed(parameters={"weight": float("nan")}), "expected a finite number"),
        (
            changed(parameters={"weight": [{"filtr": "x", "value": 1}]}),
            r"parameters.weight\[0\]: unknown field 'filtr'",
        ),
        (changed(parameters={"weight": [{"filter": "x"}]}), r"parameters.weight\[0\]: no 'value'"),
        (changed(parameters={"normalize": 1}), "parameters.normalize: expected true or false, got 1"),
        (changed(parameters={"lambda": "much"}), "parameters.lambda: expected a number or a list of"),
        (changed(parameters={"density": 10**400}), "parameters.density: expected a number"),
        (changed(parameters={"consensus": ["sum"]}), r"consensus: expected sum .*got \['sum'\]"),
        (changed(dtype=["float32"]), r"dtype: unknown type \['float32'\]"),
        (changed(out=["here"]), r"out: expected a path, got \['here'\]"),
        (
            changed(merge_method="dare_ties", parameters={"seed": -1}),
            "parameters.seed: expected a whole number from 0",
        ),
        (changed(parameters={"rescale": "l2"}), r"parameters.rescale: expected true or false \(or one of"),
        (changed(parameters={"rescale": "probability"}), "ties has no single keep probability: use 'l1'"),
        (changed(merge_method="della", parameters={"epsilon": 0.5}), "from 0 to below 0.5, got 0.5"),
        (changed(merge_method="sce", parameters={"select_topk": 2}), "select_topk: expected a number from 0"),
        (changed(merge_method="karcher", parameters={"max_iter": 1.5}), "expected a whole number from 0"),
        (
            changed(merge_method="model_stock", parameters={"filter_wise": 1}),
            "filter_wise: expected true or false, got 1",
        ),
        (
            changed(merge_method="model_stock", models=[{"model": "a"}]),
            "model_stock takes at least 2 besides the base, got 1",
        ),
        (changed(merge_method="nuslerp", models=[{"model": "a"}]), "nuslerp takes 2 besides the base, got 1"),
        (changed(merge_method="passthrough"), "passthrough takes one model, got 3"),
        (
            changed(merge_method="linear", models=[{"model": "a", "parameters": {"weight": 1}}]),
            r"models\[1\].parameters.weight is missing \(base\): base_model takes part like the others",
        ),
        (changed(parameters={"consensus": "votes"}), "parameters.consensus: expected sum"),
        (changed(dtype="bfloat17"), r"dtype: unknown type 'bfloat17' \(did you mean 'bfloat16'\?\)"),
        (
            changed(models=[{"model": "a", "parameters": {"weight": 1, "lambda": 2}}]),
            "'lambda' applies to the whole merge",
        ),
        (changed(merge_method="slerp"), "slerp takes one model besides the base, got 2"),
        (changed(merge_method="slerp", models=[{"model": "a"}], parameters={}), "parameters.t is missing"),
        (changed(slices=[]), "expected either models"),
        (changed(models=..., slices=[{}, {}]), "only one slice over whole models"),
        (
            changed(
                models=...,
                slices=[
                    {
                        "sources": [
                            {"model": "a", "layer_range": [0, 3]},
                            {"model": "b", "layer_range": [1, 4]},
                        ]
                    }
                ],
            ),
            "every source needs the same layer_range",
        ),
    ],
)
def test_errors_name_the_field_and_the_nearest_name(values: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        parse_recipe(values, "mine.yaml")
    assert str(caught.value).startswith("mine.yaml: ")


def test_files_that_are_no_recipes(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such recipe"):
        load_recipe(tmp_path / "absent.yaml")
    (tmp_path / "bad.yaml").write_text("models: [")
    with pytest.raises(ValueError, match=r"bad\.yaml: not valid YAML"):
        load_recipe(tmp_path / "bad.yaml")
