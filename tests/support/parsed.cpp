// Empty source of the precompiled header's target, since a target requires a source.
