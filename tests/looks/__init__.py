"""What the pages look like: each is opened in a browser, wide and narrow, light and dark, and asked what is wrong with it."""
