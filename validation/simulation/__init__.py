"""Discrete-event simulation of a plan."""

from pipeplan.validation.simulation.options import SimulationOptions
from pipeplan.validation.simulation.result import Simulation
from pipeplan.validation.simulation.simulate import enough_in_flight, floor_ms, simulate

__all__ = ["Simulation", "SimulationOptions", "enough_in_flight", "floor_ms", "simulate"]
