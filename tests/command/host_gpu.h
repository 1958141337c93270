/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_gpu: a libcuda.so.1 whose "GPU" is this processor: device memory is host memory, and a launch of a libdecode kernel is
 * computed at once from its parameter block and tensor maps, in f32 with operands of 16 bits, as a kernel would. So
 * `libdecode check`, `bench` and `demo` run from end to end where there is no GPU, and can be seen to find what is wrong:
 *
 *     HOST_GPU_DEFECT=skip_token      the last visible token of every request of more than 40 is forgotten
 *     HOST_GPU_DEFECT=leak            rows behind the last token get weight 0, but are read: 0 * NaN
 *     HOST_GPU_DEFECT=wild_write      writes behind the end of out
 *     HOST_GPU_DEFECT=workspace       writes behind the end of the workspace
 *     HOST_GPU_DEFECT=input           writes into the page table
 *     HOST_GPU_DEFECT=unsteady        one bit differs now and then
 *     HOST_GPU_DEFECT=wrong_lse       the lse is natural, not base 2
 *     HOST_GPU_DEFECT=mask_first      a masked score is -infinity before it is scaled: +infinity or NaN after
 *     HOST_GPU_DEFECT=infinite_sink   the weight of an infinite sink is the difference of two infinities
 *     HOST_GPU_DEFECT=read_on         a length beyond the page table, or the capacity, reads on; not in the last request
 *     HOST_GPU_DEFECT=huge_scores     a maximum counts as new if it is more than the last one + 8, in f32
 *     HOST_GPU_DEFECT=lost_nan        tokens whose scores are all NaN or masked count as none
 *     HOST_GPU_DEFECT=e4m3_operands   P is rounded to e4m3, as other libraries do
 *     HOST_GPU_DEFECT=e5m2_as_e4m3    an e5m2 KV cache is read as e4m3
 *     HOST_GPU_DEFECT=e5m2_finite     its infinities and NaN are read as the numbers that would follow 57344
 *     HOST_GPU_DEFECT=query_range     a bf16 query becomes fp16 as it is
 *     HOST_GPU_DEFECT=next_scale      a block of an NVFP4 row gets the scale of the next one
 *     HOST_GPU_DEFECT=linear_scales   interleaved scales of V are read as linear ones
 *     HOST_GPU_DEFECT=swizzle         scales of an NVFP4 result lie a column off
 *     HOST_GPU_DEFECT=padding         the padding columns of these scales are not written
 *     HOST_GPU_DEFECT=causal          every query token sees what stands behind it
 *     HOST_GPU_DEFECT=draft_bits      the draft mask counts as causal
 *     HOST_GPU_DEFECT=before          query tokens before the sequence see what their row of the draft mask says
 *     HOST_GPU_DEFECT=ragged_rows     the query tokens of a ragged batch stand where q_len of them would
 *     HOST_GPU_DEFECT=window_of_last  the window of every query token begins where that of the last one does
 *     HOST_GPU_DEFECT=no_cap          logits have no soft cap
 *     HOST_GPU_DEFECT=rough_cap       its tanh is exact to 2^-24 of 1, not of itself
 *     HOST_GPU_DEFECT=alibi_sign      what ALiBi adds is taken away
 *     HOST_GPU_DEFECT=skips_more      skip-softmax passes over tokens of a thousand times the weight
 *     HOST_GPU_DEFECT=skips_all       it does so with a factor beyond the length, too
 *     HOST_GPU_DEFECT=rope_f32        the angle of a rotation is a product in f32
 *     HOST_GPU_DEFECT=rope_neighbours pairs of dims that are rotated lie side by side
 *     HOST_GPU_DEFECT=rope_query      of several query tokens all are rotated as the first is
 *     HOST_GPU_DEFECT=lse_base        the lse is base 2 where base e is asked for; so are those that are merged
 *     HOST_GPU_DEFECT=lse_sink        the lse has the sink in it where it should not
 *     HOST_GPU_DEFECT=lse_empty       an empty lse is -infinity where +infinity is asked for
 *     HOST_GPU_DEFECT=lse_shift       with ALiBi the lse is of distances where biases from position 0 are asked for
 *     HOST_GPU_DEFECT=neighbours      the bits of a request's result depend on the size of the batch
 *     HOST_GPU_DEFECT=place           the bits of a request's result depend on its place in the batch
 *     HOST_GPU_DEFECT=merge_nan       a partial result of no weight is multiplied by 0
 *     HOST_GPU_DEFECT=merge_mask      masked tokens are merged, too
 *     HOST_GPU_DEFECT=early           a programmatic launch is over before the one ahead of it begins
 *     HOST_GPU_DEFECT=unwritten       a launch whose history is final is over before the one ahead of it begins
 *     HOST_GPU_DEFECT=crash           every call after the first launch answers CUDA_ERROR_ILLEGAL_ADDRESS
 *     HOST_GPU_DEFECT=endless         what was launched is still running, however often cuStreamQuery is asked
 *     HOST_GPU_CAPABILITY=120         another GPU than an H200
 *     HOST_GPU_KERNELS=FOLDER         kernels that lie there as FOLDER/NAME.so are not computed from what is asked of them, but run,
 *                                     thread by thread (tests/kernels/played/), in an order that HOST_GPU_SEED (default 1) picks
 *
 * host_gpu.c: the driver's calls. host_gpu_kernels.c, host_gpu_merge.c: what a launch computes. host_gpu_played.c: kernels that run.
 */
#ifndef LIBDECODE_HOST_GPU_H
#define LIBDECODE_HOST_GPU_H

#include <stddef.h>
#include <stdint.h>

#define HOST_GPU_MAX_PARAMETER_BYTES 1024

/* Whether HOST_GPU_DEFECT is this one. */
int host_gpu_has_defect(const char *name);

/* Bytes of the parameter block of the kernel of that name; 0: no kernel of libdecode. */
size_t host_gpu_parameter_bytes(const char *kernel);

/* Whether it was launched with LIBDECODE_LAUNCH_HISTORY_FINAL. */
int host_gpu_knows_history(const char *kernel, const void *parameters);

/* Computes. `row_tile`, `cluster_size` and the rest of the contract play no role. */
void host_gpu_execute(const char *kernel, const void *parameters);

/* Whether cuMemAlloc_v2 gave it to somebody who has it still. */
int host_gpu_is_allocated(const void *address);

/* Runs the kernel of that name where HOST_GPU_KERNELS has it; 0: it has not. */
int host_gpu_play(const char *kernel, const void *parameters, unsigned grid, unsigned cluster_size, unsigned threads,
                  unsigned shared_bytes);

/* The part of it that merges partial results: struct merge_states_params. */
void host_gpu_merge_states(const void *parameters);

#endif
