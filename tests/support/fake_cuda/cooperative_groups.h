// Empty stand-in for the header that <specula/cuda/primitives/group.cuh> includes for the device.
#pragma once
