// What begins every kernel. Its blocks may be on the device already while the work before it ends: they wait here until that work is done and
// what it wrote can be seen. No kernel may do anything before but ask for constants: what a kernel waits for has waited for all that was before, and
// so on.
// (None says early that the kernel after it may come, which would have all blocks of long chains wait on the device at once: they take the
// places of those that work. Whether one may come before the end of the other is for the edge between them to say.)
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define BEGIN_KERNEL asm volatile("griddepcontrol.wait;" ::: "memory")
#else
#define BEGIN_KERNEL
#endif
// Stands where a kernel would begin, if what it calls does: that asks for constants first.
#define BEGIN_LATER
