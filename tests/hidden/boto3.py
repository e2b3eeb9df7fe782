"""Programs that tests start do not find boto3, which the tests' server brings, as users do not.

Where rasterio finds it, it imports it, which takes a fifth of the start of a program.
"""

raise ImportError("hidden from programs under test")
