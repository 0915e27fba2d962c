"""Settings survive the file, and wrong ones are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memory.config import FILE_NAME, ImportanceWeights, Policy, ReservoirConfig, StoreConfig
from memory.merging import MergeOptions

FULL = StoreConfig(
    importance=ImportanceWeights(novelty=0.9),
    reservoir=ReservoirConfig(share=0.5, most=None),
    merging=MergeOptions(kinds=("note", "event"), max_distance_m=2.0),
    forgetting=Policy(name="decay", half_life_s=60.0, least=0.1),
    capacity=12,
    index_from=5,
    half_life_s=3.5,
)


@pytest.mark.parametrize("config", [StoreConfig(), FULL])
def test_the_file_gives_back_what_was_saved(tmp_path: Path, config: StoreConfig) -> None:
    config.save(tmp_path)
    assert StoreConfig.load(tmp_path) == config
    assert StoreConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_without_a_file_the_settings_are_the_usual_ones(tmp_path: Path) -> None:
    assert StoreConfig.load(tmp_path) == StoreConfig() == StoreConfig.from_json({})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "Expecting"),
        ("[1]", "must be an object, got list"),
        ('{"colour": 1}', "unknown setting 'colour'. Known settings: capacity"),
        ('{"reservoir": {"share": 2.0}}', "setting 'reservoir': share must be from 0 to 1"),
        ('{"reservoir": {"shares": 1}}', "setting 'reservoir'.*shares"),
        ('{"merging": 3}', "setting 'merging': must be an object, got int"),
        ('{"forgetting": {"name": "never"}}', "setting 'forgetting'"),
        ('{"importance": {"novelty": "much"}}', "novelty must be a number"),
        ('{"capacity": 0}', "capacity must be at least 1"),
        ('{"capacity": "many"}', "capacity must be an integer, got str"),
        ('{"index_from": 1.5}', "index_from must be an integer"),
        ('{"index_from": 0}', "index_from must be at least 1"),
        ('{"index": "magic"}', "index must be one of"),
        ('{"half_life_s": 0}', "half_life_s must be above 0"),
        ('{"half_life_s": NaN}', "half_life_s must be finite"),
    ],
)
def test_a_wrong_file_is_named_with_the_setting(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(ValueError, match=said) as error:
        StoreConfig.load(tmp_path)
    assert str(tmp_path / FILE_NAME) in str(error.value)
