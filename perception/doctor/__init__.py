"""Checks of a data set before training or detection, with explanations and fixes."""

from perception.doctor.examine import examine_data_set
from perception.doctor.report import DoctorReport, format_report
from perception.scans.finding import Finding

__all__ = ["DoctorReport", "Finding", "examine_data_set", "format_report"]
