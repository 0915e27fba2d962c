"""Says in words what is wrong with a custom data set before training or detection."""

from perception.doctor.examine import examine_data_set
from perception.doctor.report import DoctorReport, format_report
from perception.scans.finding import Finding

__all__ = ["DoctorReport", "Finding", "examine_data_set", "format_report"]
