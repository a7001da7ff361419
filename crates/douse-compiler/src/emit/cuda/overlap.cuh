// What begins every kernel. Its blocks may be on the device already while the work before it ends: they wait here until that work is done and
// what it wrote can be seen. The kernel after it may come as early. No kernel may do anything before: what a kernel waits for has waited for
// all that was before, and so on.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define BEGIN_KERNEL asm volatile("griddepcontrol.launch_dependents;\n\tgriddepcontrol.wait;" ::: "memory")
#else
#define BEGIN_KERNEL
#endif
