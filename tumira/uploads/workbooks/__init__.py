"""Workbooks: XLSX and ODS files, read within bounds in a process of their own."""
