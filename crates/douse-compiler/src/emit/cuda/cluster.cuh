// Clusters: blocks that have each other's shared memory (sm_90 and later).

// Waits for the blocks of the cluster, and shows them what this one wrote.
DEVICE void sync_cluster() {
#ifdef __CUDA_ARCH__
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" : : : "memory");
#endif
}
// Four numbers that lie in the shared memory of a block of the cluster where `p` lies in this one's.
DEVICE Vector<float, 4> load_cluster(const float *p, int block) {
  Vector<float, 4> v;
#ifdef __CUDA_ARCH__
  uint32 at = (uint32)__cvta_generic_to_shared(p);
  asm volatile("{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %4, %5;\n"
               "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n}"
               : "=f"(v.element[0]), "=f"(v.element[1]), "=f"(v.element[2]), "=f"(v.element[3]) : "r"(at), "r"(block) : "memory");
#endif
  return v;
}
// The same of two.
DEVICE Vector<float, 2> load_cluster_pair(const float *p, int block) {
  Vector<float, 2> v;
#ifdef __CUDA_ARCH__
  uint32 at = (uint32)__cvta_generic_to_shared(p);
  asm volatile("{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %2, %3;\nld.shared::cluster.v2.f32 {%0, %1}, [there];\n}"
               : "=f"(v.element[0]), "=f"(v.element[1]) : "r"(at), "r"(block) : "memory");
#endif
  return v;
}
