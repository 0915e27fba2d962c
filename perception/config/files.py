"""Convert configurations to and from nested dicts and YAML files."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from perception.config.backbone import BackboneConfig, section_of
from perception.errors import ConfigError
from sparse_core.common.files import write_file

ConfigT = TypeVar("ConfigT")


def to_dict(config: Any) -> dict[str, Any]:
    """Convert a configuration to nested dicts and lists for YAML or JSON."""
    result: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    return result


def from_dict(kind: type[ConfigT], values: Mapping[str, Any], *, where: str = "") -> ConfigT:
    """Build a configuration from nested dicts; missing fields keep their defaults.

    Args:
        kind: dataclass to build.
        values: fields by name.
        where: prefix of field names in messages.

    Raises:
        ConfigError: unknown field, or a value of the wrong type or out of range.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where or 'configuration'} must be a mapping of fields, got {values!r}")
    hints = typing.get_type_hints(kind)
    known = {entry.name for entry in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise ConfigError(f"unknown field {where}{name}; known: {', '.join(sorted(known))}")
    arguments = {name: _convert(hints[name], value, f"{where}{name}") for name, value in values.items()}
    return kind(**arguments)


def _convert(hint: Any, value: Any, name: str) -> Any:
    if dataclasses.is_dataclass(hint):
        if hint is BackboneConfig and isinstance(value, Mapping):
            hint = section_of(value.get("kind", BackboneConfig.kind))
        return from_dict(typing.cast(type[Any], hint), value, where=f"{name}.")
    origin = typing.get_origin(hint)
    if origin is types.UnionType:
        # All unions have one type and None.
        given, *_ = (part for part in typing.get_args(hint) if part is not type(None))
        return None if value is None else _convert(given, value, name)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{name} must be a list, got {value!r}")
        inner = typing.get_args(hint)[0]
        return tuple(_convert(inner, entry, name) for entry in value)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{name} must be a mapping, got {value!r}")
        key_hint, entry_hint = typing.get_args(hint)
        return {
            _convert(key_hint, key, name): _convert(entry_hint, entry, name) for key, entry in value.items()
        }
    if origin is typing.Literal:
        if value not in typing.get_args(hint):
            raise ConfigError(f"{name} must be one of {', '.join(typing.get_args(hint))}; got {value!r}")
        return value
    if hint is bool or isinstance(value, bool):
        if hint is not bool or not isinstance(value, bool):
            raise ConfigError(
                f"{name} must be {'true or false' if hint is bool else hint.__name__}, got {value!r}"
            )
        return value
    if hint is float and isinstance(value, int):
        return float(value)
    if not isinstance(value, hint):
        raise ConfigError(f"{name} must be {hint.__name__}, got {value!r}")
    return value


def load_config(kind: type[ConfigT], path: str | Path) -> ConfigT:
    """Read a YAML file into a configuration.

    Raises:
        ConfigError: missing file, invalid YAML, or a wrong field.
    """
    path = Path(path)
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such configuration file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the configuration file ({error.strerror})") from error
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError, TypeError, KeyError) as error:
        # YAMLError does not cover deep nesting, huge numbers or bad dates.
        raise ConfigError(f"{path}: not a YAML file: {str(error)[:500] or type(error).__name__}") from error
    try:
        return from_dict(kind, {} if values is None else values)
    except (ValueError, OverflowError, RecursionError) as error:
        # Integers of thousands of digits raise when converted to float or printed.
        raise ConfigError(f"{path}: {str(error)[:500] or type(error).__name__}") from error


def save_config(config: Any, path: str | Path) -> None:
    """Write a configuration as YAML."""
    write_file(Path(path), yaml.safe_dump(to_dict(config), sort_keys=False, default_flow_style=None))
