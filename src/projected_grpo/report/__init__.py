"""What people read: tables, plots, results.md, the UAT, the HTML page. From files alone."""
