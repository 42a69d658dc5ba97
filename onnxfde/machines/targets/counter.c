/*
 * A plugin of qemu-user (plugin API 1) that counts the instructions an AArch64 guest executes.
 *
 * Each translation block adds its length, and the number of its SIMD and floating-point operations,
 * when it starts to run. When the guest calls getpgid(MARKER), the two sums so far are written as a
 * line "total simd" to the file that the argument out= names. Threads are not told apart, and the
 * sums are not atomic: the guest should compute in one thread.
 *
 * qemu's header is not needed: the part of its interface that is used here is declared here.
 */

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_op { ADD_U64 };

typedef void tb_callback(uint64_t id, struct qemu_plugin_tb *block);
typedef void syscall_callback(uint64_t id, unsigned int cpu, int64_t number, uint64_t a1,
                              uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6,
                              uint64_t a7, uint64_t a8);

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, tb_callback *callback);
void qemu_plugin_register_vcpu_syscall_cb(uint64_t id, syscall_callback *callback);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *block, enum qemu_plugin_op op,
                                              void *sum, uint64_t term);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *instruction);

int qemu_plugin_version = 1;

static const int64_t GETPGID = 155;
static const uint32_t MARKER = 0x0fde0fde; /* above every process id; as in sysroot.py */

static uint64_t total;
static uint64_t simd;
static FILE *log_file;

/* Bits 28..25 are x111: data processing on SIMD and floating-point registers. */
static int is_simd(const struct qemu_plugin_insn *instruction)
{
    uint32_t word;
    memcpy(&word, qemu_plugin_insn_data(instruction), sizeof word);
    return (word >> 25 & 7) == 7;
}

static void translate(uint64_t id, struct qemu_plugin_tb *block)
{
    size_t length = qemu_plugin_tb_n_insns(block);
    uint64_t vectors = 0;

    (void)id;
    for (size_t i = 0; i < length; i++)
        vectors += is_simd(qemu_plugin_tb_get_insn(block, i));
    qemu_plugin_register_vcpu_tb_exec_inline(block, ADD_U64, &total, length);
    if (vectors)
        qemu_plugin_register_vcpu_tb_exec_inline(block, ADD_U64, &simd, vectors);
}

static void system_call(uint64_t id, unsigned int cpu, int64_t number, uint64_t a1, uint64_t a2,
                        uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7,
                        uint64_t a8)
{
    (void)id, (void)cpu, (void)a2, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
    if (number != GETPGID || (uint32_t)a1 != MARKER)
        return;
    fprintf(log_file, "%" PRIu64 " %" PRIu64 "\n", total, simd);
    fflush(log_file);
}

int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
    (void)info;
    if (argc != 1 || strncmp(argv[0], "out=", 4) != 0) {
        fprintf(stderr, "counter: give out=FILE\n");
        return 1;
    }
    log_file = fopen(argv[0] + 4, "w");
    if (!log_file) {
        perror(argv[0] + 4);
        return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
    qemu_plugin_register_vcpu_syscall_cb(id, system_call);
    return 0;
}
