// What products read and write: operands, which lie in strided memory or are an image's windows, and results.

// What products accumulate in: float16 and bfloat16 in float, rounded once; integers wrap.
DEVICE float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE double multiply_add(double a, double b, double c) { return fma(a, b, c); }
template <class T> DEVICE T multiply_add(T a, T b, T c) { return op_add(op_mul(a, b), c); }

// Neighbouring results of a row, and how they are stored `stride` elements apart.
template <class R, int N> struct Run {
  R x[N];
  DEVICE R operator[](int i) const { return x[i]; }
};
// As elements of type T keep them.
template <class T, class R, int N> DEVICE Run<R, N> rounded_run(const Run<R, N> &run) {
  Run<R, N> rounded;
#pragma unroll
  for (int i = 0; i < N; ++i) rounded.x[i] = Element<T>::load(Element<T>::store(run.x[i]));
  return rounded;
}
template <class T, class R, int N> DEVICE void store_run(T *p, int64 stride, const Run<R, N> &run, int count) {
  if (stride == 1) {
    Vector<T, N> v;
#pragma unroll
    for (int i = 0; i < N; ++i) v.set(i, run.x[i]);
    store_vector(p, v, count);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) if (i < count) store(p + i * stride, run.x[i]);
  }
}

// Where results go: `place(row, column)` is a pointer. TOGETHER: neighbours of a row lie `stride` apart; else each is asked for.
template <bool TOGETHER, class Place> struct Stored {
  Place place;
  int64 stride;
  template <class R, int N> DEVICE void operator()(int64 row, int64 column, const Run<R, N> &run, int count) const {
    if (TOGETHER) {
      store_run(place(row, column), stride, run, count);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) if (i < count) store(place(row, column + i), run.x[i]);
    }
  }
};
template <bool TOGETHER, class Place> DEVICE Stored<TOGETHER, Place> stored(Place place, int64 stride) {
  return Stored<TOGETHER, Place>{place, stride};
}
// The same, `bias(row, column)` added.
template <class Bias, class Out> struct Biased {
  Bias bias;
  Out out;
  template <class R, int N> DEVICE void operator()(int64 row, int64 column, const Run<R, N> &run, int count) const {
    Run<R, N> sum = run;
#pragma unroll
    for (int i = 0; i < N; ++i) if (i < count) sum.x[i] = op_add(run.x[i], bias(row, column + i));
    out(row, column, sum, count);
  }
};
template <class Bias, class Out> DEVICE Biased<Bias, Out> biased(Bias bias, Out out) { return Biased<Bias, Out>{bias, out}; }

// ---- Loaders -------------------------------------------------------------------------------------------------------------

// How elements lie, as far as the emitter knows: one by one; in chunks of 16 bytes, if the pointer is aligned; and no chunk is cut off at the end.
const int SCATTERED = 0, CHUNKED = 1, WHOLE = 2;

// Elements of a matrix in strided memory, `rows` x `depth`; outside of it, zero.
template <class T, int CHUNKS_> struct Strided {
  typedef T Type;
  static const int CHUNKS = CHUNKS_;
  static const bool STRIDED = true;
  const T *start;
  int64 rows, depth, row_stride, depth_stride;
  DEVICE bool rows_are_adjacent() const { return row_stride == 1 && depth_stride != 1; }
  // Where an element lies; null outside.
  DEVICE const T *where(int64 row, int64 k) const {
    return row < rows && k < depth ? start + (row * row_stride + k * depth_stride) : nullptr;
  }
  DEVICE T at(int64 row, int64 k) const {
    const T *p = where(row, k);
    return p ? *p : T{};
  }
  // Whether every N elements from a multiple of N on, along the adjacent direction, are aligned.
  template <int N> DEVICE bool in_chunks() const {
    int64 other = rows_are_adjacent() ? depth_stride : row_stride;
    return (rows_are_adjacent() || depth_stride == 1) && other % N == 0 && Access<T, N>::aligned(start);
  }
  // Where N such elements begin, and how many of them there are.
  template <int N> DEVICE const T *chunk(int64 row, int64 k, int &count) const {
    int64 left = rows_are_adjacent() ? (k < depth ? rows - row : 0) : (row < rows ? depth - k : 0);
    count = left <= 0 ? 0 : CHUNKS == WHOLE ? N : (int)smaller<int64>(left, N);
    return count > 0 ? start + (row * row_stride + k * depth_stride) : start;
  }
};

// Elements where a function says: a pointer, or null for a zero. WHOLE: eight along the depth lie side by side, all or none of them there.
template <class T, int CHUNKS_, bool ADJACENT_ROWS, class F> struct Gathered {
  typedef T Type;
  static const int CHUNKS = CHUNKS_;
  static const bool STRIDED = false;
  F f;
  const T *start;
  int64 rows, depth;
  DEVICE bool rows_are_adjacent() const { return ADJACENT_ROWS; }
  DEVICE const T *where(int64 row, int64 k) const { return row < rows && k < depth ? f(row, k) : nullptr; }
  DEVICE T at(int64 row, int64 k) const {
    const T *p = where(row, k);
    return p ? *p : T{};
  }
  template <int N> DEVICE bool in_chunks() const { return CHUNKS == WHOLE && 8 % N == 0 && Access<T, N>::aligned(start); }
  template <int N> DEVICE const T *chunk(int64 row, int64 k, int &count) const {
    const T *p = where(row, k);
    count = p ? N : 0;
    return p ? p : start;
  }
};
template <class T, int CHUNKS, bool ADJACENT_ROWS, class F>
DEVICE Gathered<T, CHUNKS, ADJACENT_ROWS, F> gathered(F f, const T *start, int64 rows, int64 depth) {
  return Gathered<T, CHUNKS, ADJACENT_ROWS, F>{f, start, rows, depth};
}

// What a row, or a depth, of an image's windows gives to the place of an element, and to its coordinates in the image.
template <class U, int D> struct alignas(16) Offset {
  // Far outside of every image, also where two of them meet.
  static const U NOWHERE = (U)3 << (8 * sizeof(U) - 3);
  U place, at[D];
};
// Where an image's windows have their elements: its row's and its depth's offsets add up, in unsigned numbers, so that what is negative is outside, too.
template <class T, class U, int D, class OfRow, class OfDepth> struct Windows {
  typedef Offset<U, D> Part;
  OfRow of_row;
  OfDepth of_depth;
  const T *image;
  Part sizes;
  // Where strides are negative, places are, too: such images have wide ones.
  DEVICE const T *at(U place) const { return image + (int64)place; }
  // Whether there is such an element, and where.
  DEVICE bool meet(const Part &row, const Part &k, U &place) const {
    bool inside = true;
#pragma unroll
    for (int d = 0; d < D; ++d) inside &= row.at[d] + k.at[d] < sizes.at[d];
    place = inside ? row.place + k.place : 0;
    return inside;
  }
  DEVICE const T *operator()(int64 row, int64 k) const {
    U place;
    return meet(of_row(row), of_depth(k), place) ? at(place) : nullptr;
  }
};
template <class T, class U, int D, class OfRow, class OfDepth>
DEVICE Windows<T, U, D, OfRow, OfDepth> windows(OfRow of_row, OfDepth of_depth, const T *image, Offset<U, D> sizes) {
  return Windows<T, U, D, OfRow, OfDepth>{of_row, of_depth, image, sizes};
}
// Whether a loader's elements are those of windows, and the offsets they are made of.
template <class Loader> struct Offsets {
  static const bool THERE = false;
  struct Part {};
};
template <class T, int CHUNKS, bool ADJACENT_ROWS, class U, int D, class OfRow, class OfDepth>
struct Offsets<Gathered<T, CHUNKS, ADJACENT_ROWS, Windows<T, U, D, OfRow, OfDepth>>> {
  static const bool THERE = true;
  typedef Offset<U, D> Part;
};

// N elements along the direction in which they are adjacent.
template <int N, class Loader> DEVICE Vector<typename Loader::Type, N> fetch(const Loader &loader, int64 row, int64 k, bool in_chunks) {
  typedef typename Loader::Type T;
  if (Loader::CHUNKS != SCATTERED && in_chunks) {
    int count;
    const T *p = loader.template chunk<N>(row, k, count);
    return Loader::CHUNKS == WHOLE ? load_whole<N>(p, count > 0) : load_vector<N>(p, count);
  }
  Vector<T, N> v;
#pragma unroll
  for (int i = 0; i < N; ++i) v.element[i] = loader.rows_are_adjacent() ? loader.at(row + i, k) : loader.at(row, k + i);
  return v;
}

// N elements along the depth.
template <int N, class Loader> DEVICE Vector<typename Loader::Type, N> fetch_depth(const Loader &loader, int64 row, int64 k, bool in_chunks) {
  if (!loader.rows_are_adjacent()) return fetch<N>(loader, row, k, in_chunks);
  Vector<typename Loader::Type, N> v;
#pragma unroll
  for (int i = 0; i < N; ++i) v.element[i] = loader.at(row, k + i);
  return v;
}
