"""The HTTP server: protocols that clients already speak, in front of task objects and their engines.

`endpoint` is how a request goes: read, validated, run, answered, given up when its client goes away. `work` is where
computing happens, never on the event loop. Each protocol is one file that lists its endpoints. `app` puts all together.
"""
