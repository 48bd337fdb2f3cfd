"""The zoo: right and broken functions in pairs, which the auditor must tell apart. `specimen` says what an entry is."""
