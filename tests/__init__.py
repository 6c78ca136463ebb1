"""Everything that shows that Tumira keeps its promises."""
