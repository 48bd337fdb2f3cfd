"""Tests of pairgrad_paper.runs: killed processes (`drill`), full disks (`disks`), and states that must be `equal` bit for bit."""
