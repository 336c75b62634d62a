"""What a change of energy is in kWh, money and CO2 a day for a fleet; the page lets its reader give their own."""

from __future__ import annotations

from dataclasses import dataclass

GPUS, HOURS = 1000, 24.0  # until the reader gives others


@dataclass(frozen=True, slots=True)
class FleetEstimate:
    """A fleet that runs the iteration all day. None: no price or no figure of the grid was given."""

    power_w: float  # mean of one GPU at auto clocks
    energy_change_percent: float  # negative = saved
    how: str  # that change is known: measured again, claimed or forecast
    simulated: bool
    usd_per_kwh: float | None
    co2_g_per_kwh: float | None
    gpus: int = GPUS
    hours: float = HOURS

    @property
    def change_kwh(self) -> float:
        """A day, all GPUs."""
        return self.gpus * self.power_w * self.hours / 1000 * self.energy_change_percent / 100

    @property
    def change_usd(self) -> float | None:
        return None if self.usd_per_kwh is None else self.change_kwh * self.usd_per_kwh

    @property
    def change_co2_kg(self) -> float | None:
        return None if self.co2_g_per_kwh is None else self.change_kwh * self.co2_g_per_kwh / 1000
