#pragma once

// The one place where the version stands: CMake reads these three lines.
#define SPECULA_VERSION_MAJOR 0
#define SPECULA_VERSION_MINOR 1
#define SPECULA_VERSION_PATCH 0
