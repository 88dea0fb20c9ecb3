"""The composition root: settings to objects. The only place that knows concrete classes.

``simulated`` joins loop and simulator, ``live`` loop and adapters, ``replayed`` controller and log.
"""
