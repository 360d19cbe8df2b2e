// Empty stand-in for the header that <specula/cuda/detail/primitives/group.cuh> includes for the device.
#pragma once
