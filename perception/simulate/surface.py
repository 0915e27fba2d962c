"""Response of surfaces to a laser pulse: reflectivity, lost returns, roughness."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt


class Material(IntEnum):
    """Kind of surface, stored as one byte per triangle."""

    ASPHALT = 0
    PAVEMENT = 1
    GRASS = 2
    MARKING = 3
    MASONRY = 4
    GLASS = 5
    LEAF = 6
    BARK = 7
    METAL = 8
    PAINT = 9
    RUBBER = 10
    REFLECTOR = 11
    CLOTH = 12
    SKIN = 13
    WOOD = 14
    MESH_WIRE = 15


@dataclass(frozen=True)
class Surface:
    """Response of one material to a pulse.

    Attributes:
        reflectivity: intensity at normal incidence and short range, in [0, 1].
        incidence_power: exponent of cos(incidence angle) in the intensity; 0 for rough, large for glossy.
        return_probability: chance of a return at normal incidence and short range.
        roughness_m: standard deviation of the surface height; adds range noise, more at grazing incidence.
        retro_gain: light returned to the sensor relative to a matt surface.
    """

    reflectivity: float
    incidence_power: float
    return_probability: float
    roughness_m: float = 0.0
    retro_gain: float = 1.0


SURFACES: Final[dict[Material, Surface]] = {
    Material.ASPHALT: Surface(0.28, 0.06, 0.99, 0.001),
    Material.PAVEMENT: Surface(0.40, 0.06, 0.99, 0.002),
    Material.GRASS: Surface(0.46, 0.05, 0.98, 0.045),
    Material.MARKING: Surface(0.58, 0.06, 1.0),
    Material.MASONRY: Surface(0.36, 0.12, 0.99, 0.005),
    Material.GLASS: Surface(0.03, 1.0, 0.14),
    Material.LEAF: Surface(0.42, 0.15, 0.97, 0.01),
    Material.BARK: Surface(0.33, 0.2, 0.98, 0.01),
    Material.METAL: Surface(0.30, 0.8, 0.95),
    Material.PAINT: Surface(0.22, 1.0, 0.96),
    Material.RUBBER: Surface(0.03, 0.5, 0.80),
    Material.REFLECTOR: Surface(0.95, 0.1, 1.0, retro_gain=30.0),
    Material.CLOTH: Surface(0.28, 0.2, 0.97),
    Material.SKIN: Surface(0.45, 0.2, 0.98),
    Material.WOOD: Surface(0.40, 0.2, 0.99, 0.004),
    Material.MESH_WIRE: Surface(0.25, 0.3, 0.45),
}


def _column(name: str) -> npt.NDArray[np.float32]:
    return np.array([getattr(SURFACES[material], name) for material in Material], np.float32)


#: One entry per material, indexed by ``Material``.
INCIDENCE_POWER: Final = _column("incidence_power")
RETURN_PROBABILITY: Final = _column("return_probability")
ROUGHNESS_M: Final = _column("roughness_m")
RETRO_GAIN: Final = _column("retro_gain")
