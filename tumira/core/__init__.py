"""What every subject uses: errors, ids, money, settings, logging, metrics and background loops."""
