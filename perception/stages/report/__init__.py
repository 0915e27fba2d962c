"""Report of a frame: mapped scores, order, headings and sizes in one block of memory."""

from perception.stages.report.api import REPORT, fixed_report
from perception.stages.report.common import Reported, ReportLayout, ReportRules

__all__ = ["REPORT", "ReportLayout", "ReportRules", "Reported", "fixed_report"]
