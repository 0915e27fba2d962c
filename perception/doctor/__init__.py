"""Checks of a data set before training or detection, and of the installation, with explanations and fixes."""

from perception.doctor.examine import examine_data_set
from perception.doctor.installation import InstallationReport, examine_installation, format_installation
from perception.doctor.report import DoctorReport, format_report
from perception.scans.finding import Finding

__all__ = [
    "DoctorReport",
    "Finding",
    "InstallationReport",
    "examine_data_set",
    "examine_installation",
    "format_installation",
    "format_report",
]
