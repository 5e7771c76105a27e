"""Generated packages run under torchrun on the CPU, beside what was predicted and simulated.

python -m pipeplan.validation.measured                            prints the tables
python -m pipeplan.validation.measured --write docs/fidelity.md   replaces those of the page
"""

from pipeplan.validation.measured.cases import Case, sleeping_case, sleeping_cases, zoo_cases
from pipeplan.validation.measured.runs import Row, measure
from pipeplan.validation.measured.table import tables

__all__ = ["Case", "Row", "measure", "sleeping_case", "sleeping_cases", "tables", "zoo_cases"]
