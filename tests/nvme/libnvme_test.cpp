// SPDX-License-Identifier: Apache-2.0
//! \file
//! Structures, opcodes, status codes and registers, compared with libnvme's headers, which are written independently
//! from the specification.
#include <gtest/gtest.h>
#include <libnvme.h>

#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/feature.hpp"
#include "forebay/detail/nvme/identify.hpp"
#include "forebay/detail/nvme/log_page.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/nvme/status_code.hpp"

namespace forebay::nvme {
namespace {

/// Our field is at the same offset as theirs and has the same length.
#define EXPECT_FIELD(ours, our_field, theirs, their_field)                                    \
  do {                                                                                        \
    EXPECT_EQ(offsetof(ours, our_field), offsetof(struct theirs, their_field)) << #our_field; \
    EXPECT_EQ(sizeof(ours::our_field), sizeof(theirs::their_field)) << #our_field;            \
  } while (false)

// clang-format off: tables of fields, in the specification's order
TEST(libnvme, has_the_same_identify_controller) {
  EXPECT_EQ(sizeof(identify_controller), sizeof(nvme_id_ctrl));
#define FIELD(ours, theirs) EXPECT_FIELD(identify_controller, ours, nvme_id_ctrl, theirs)
#define SAME(field) FIELD(field, field)
  SAME(vid); SAME(ssvid); SAME(sn); SAME(mn); SAME(fr); SAME(rab); SAME(ieee); SAME(cmic); SAME(mdts); SAME(cntlid);
  SAME(ver); SAME(rtd3r); SAME(rtd3e); SAME(oaes); SAME(ctratt); SAME(rrls); SAME(cntrltype); SAME(fguid); SAME(crdt1);
  SAME(crdt2); SAME(crdt3); SAME(nvmsr); SAME(vwci); SAME(mec); SAME(oacs); SAME(acl); SAME(aerl); SAME(frmw); SAME(lpa);
  SAME(elpe); SAME(npss); SAME(avscc); SAME(apsta); SAME(wctemp); SAME(cctemp); SAME(mtfa); SAME(hmpre); SAME(hmmin);
  SAME(tnvmcap); SAME(unvmcap); SAME(rpmbs); SAME(edstt); SAME(dsto); SAME(fwug); SAME(kas); SAME(hctma); SAME(mntmt);
  SAME(mxtmt); SAME(sanicap); SAME(hmminds); SAME(hmmaxd); SAME(nsetidmax); SAME(endgidmax); SAME(anatt); SAME(anacap);
  SAME(anagrpmax); SAME(nanagrpid); SAME(pels); SAME(sqes); SAME(cqes); SAME(maxcmd); SAME(nn); SAME(oncs); SAME(fuses);
  SAME(fna); SAME(vwc); SAME(awun); SAME(awupf); FIELD(nvscc, icsvscc); SAME(nwpc); SAME(acwu); SAME(sgls); SAME(mnan);
  SAME(subnqn); SAME(psd); FIELD(vendor_3072, vs);
  EXPECT_EQ(offsetof(identify_controller, fabrics_1792), offsetof(nvme_id_ctrl, ioccsz));
#undef FIELD
#define FIELD(ours, theirs) EXPECT_FIELD(power_state_descriptor, ours, nvme_id_psd, theirs)
  EXPECT_EQ(sizeof(power_state_descriptor), sizeof(nvme_id_psd));
  SAME(mp); SAME(flags); SAME(enlat); SAME(exlat); SAME(rrt); SAME(rrl); SAME(rwt); SAME(rwl); SAME(idlp); SAME(ips);
  SAME(actp); SAME(apws);
#undef FIELD
}

TEST(libnvme, has_the_same_identify_namespace) {
  EXPECT_EQ(sizeof(identify_namespace), sizeof(nvme_id_ns));
#define FIELD(ours, theirs) EXPECT_FIELD(identify_namespace, ours, nvme_id_ns, theirs)
  SAME(nsze); SAME(ncap); SAME(nuse); SAME(nsfeat); SAME(nlbaf); SAME(flbas); SAME(mc); SAME(dpc); SAME(dps); SAME(nmic);
  SAME(rescap); SAME(fpi); SAME(dlfeat); SAME(nawun); SAME(nawupf); SAME(nacwu); SAME(nabsn); SAME(nabo); SAME(nabspf);
  SAME(noiob); SAME(nvmcap); SAME(npwg); SAME(npwa); SAME(npdg); SAME(npda); SAME(nows); SAME(anagrpid); SAME(nsattr);
  SAME(nvmsetid); SAME(endgid); SAME(nguid); SAME(eui64);
#undef FIELD
  EXPECT_EQ(offsetof(identify_namespace, lbaf), offsetof(nvme_id_ns, lbaf));  // theirs has 64 formats, as of 2.0
#define FIELD(ours, theirs) EXPECT_FIELD(lba_format, ours, nvme_lbaf, theirs)
  EXPECT_EQ(sizeof(lba_format), sizeof(nvme_lbaf));
  SAME(ms); FIELD(lbads, ds); SAME(rp);
#undef FIELD
  EXPECT_EQ(sizeof(namespace_list), sizeof(nvme_ns_list));
#define FIELD(ours, theirs) EXPECT_FIELD(namespace_identification_descriptor, ours, nvme_ns_id_desc, theirs)
  SAME(nidt); SAME(nidl);
#undef FIELD
  EXPECT_EQ(sizeof(namespace_identification_descriptor), offsetof(nvme_ns_id_desc, nid));
}

TEST(libnvme, has_the_same_log_pages) {
#define FIELD(ours, theirs) EXPECT_FIELD(error_information_entry, ours, nvme_error_log_page, theirs)
  EXPECT_EQ(sizeof(error_information_entry), sizeof(nvme_error_log_page));
  SAME(error_count); SAME(sqid); SAME(cmdid); SAME(status_field); FIELD(parameter_error_location, parm_error_location);
  SAME(lba); SAME(nsid); FIELD(vendor_specific_information, vs); SAME(trtype); FIELD(command_specific_information, cs);
  FIELD(transport_type_specific_information, trtype_spec_info);
#undef FIELD
#define FIELD(ours, theirs) EXPECT_FIELD(smart_health_information, ours, nvme_smart_log, theirs)
  EXPECT_EQ(sizeof(smart_health_information), sizeof(nvme_smart_log));
  SAME(critical_warning); FIELD(composite_temperature, temperature); FIELD(available_spare, avail_spare);
  FIELD(available_spare_threshold, spare_thresh); FIELD(percentage_used, percent_used);
  FIELD(endurance_group_critical_warning_summary, endu_grp_crit_warn_sumry);
  SAME(data_units_read); SAME(data_units_written); FIELD(host_read_commands, host_reads);
  FIELD(host_write_commands, host_writes); FIELD(controller_busy_time, ctrl_busy_time); SAME(power_cycles);
  SAME(power_on_hours); SAME(unsafe_shutdowns); FIELD(media_and_data_integrity_errors, media_errors);
  FIELD(number_of_error_information_log_entries, num_err_log_entries);
  FIELD(warning_composite_temperature_time, warning_temp_time);
  FIELD(critical_composite_temperature_time, critical_comp_time); FIELD(temperature_sensor, temp_sensor);
  EXPECT_EQ(offsetof(smart_health_information, thermal_management_temperature_transition_count),
            offsetof(nvme_smart_log, thm_temp1_trans_count));
  EXPECT_EQ(offsetof(smart_health_information, total_time_for_thermal_management_temperature),
            offsetof(nvme_smart_log, thm_temp1_total_time));
#undef FIELD
#define FIELD(ours, theirs) EXPECT_FIELD(firmware_slot_information, ours, nvme_firmware_slot, theirs)
  EXPECT_EQ(sizeof(firmware_slot_information), sizeof(nvme_firmware_slot));
  SAME(afi); SAME(frs);
#undef FIELD
#define FIELD(ours, theirs) EXPECT_FIELD(commands_supported_and_effects, ours, nvme_cmd_effects_log, theirs)
  EXPECT_EQ(sizeof(commands_supported_and_effects), sizeof(nvme_cmd_effects_log));
  FIELD(admin, acs); FIELD(io, iocs);
#undef FIELD
#define FIELD(ours, theirs) EXPECT_FIELD(dataset_management_range, ours, nvme_dsm_range, theirs)
  EXPECT_EQ(sizeof(dataset_management_range), sizeof(nvme_dsm_range));
  FIELD(context_attributes, cattr); FIELD(length_blocks, nlb); SAME(slba);
#undef FIELD
#undef SAME
}
// clang-format on

#define EXPECT_VALUE(ours, theirs) EXPECT_EQ(static_cast<unsigned>(ours), static_cast<unsigned>(theirs)) << #ours

TEST(libnvme, has_the_same_opcodes) {
  using a = admin_opcode;
  EXPECT_VALUE(a::delete_io_submission_queue, nvme_admin_delete_sq);
  EXPECT_VALUE(a::create_io_submission_queue, nvme_admin_create_sq);
  EXPECT_VALUE(a::get_log_page, nvme_admin_get_log_page);
  EXPECT_VALUE(a::delete_io_completion_queue, nvme_admin_delete_cq);
  EXPECT_VALUE(a::create_io_completion_queue, nvme_admin_create_cq);
  EXPECT_VALUE(a::identify, nvme_admin_identify);
  EXPECT_VALUE(a::abort, nvme_admin_abort_cmd);
  EXPECT_VALUE(a::set_features, nvme_admin_set_features);
  EXPECT_VALUE(a::get_features, nvme_admin_get_features);
  EXPECT_VALUE(a::asynchronous_event_request, nvme_admin_async_event);
  EXPECT_VALUE(a::namespace_management, nvme_admin_ns_mgmt);
  EXPECT_VALUE(a::firmware_commit, nvme_admin_fw_commit);
  EXPECT_VALUE(a::firmware_image_download, nvme_admin_fw_download);
  EXPECT_VALUE(a::device_self_test, nvme_admin_dev_self_test);
  EXPECT_VALUE(a::namespace_attachment, nvme_admin_ns_attach);
  EXPECT_VALUE(a::keep_alive, nvme_admin_keep_alive);
  EXPECT_VALUE(a::directive_send, nvme_admin_directive_send);
  EXPECT_VALUE(a::directive_receive, nvme_admin_directive_recv);
  EXPECT_VALUE(a::virtualization_management, nvme_admin_virtual_mgmt);
  EXPECT_VALUE(a::nvme_mi_send, nvme_admin_nvme_mi_send);
  EXPECT_VALUE(a::nvme_mi_receive, nvme_admin_nvme_mi_recv);
  EXPECT_VALUE(a::doorbell_buffer_config, nvme_admin_dbbuf);
  EXPECT_VALUE(a::format_nvm, nvme_admin_format_nvm);
  EXPECT_VALUE(a::security_send, nvme_admin_security_send);
  EXPECT_VALUE(a::security_receive, nvme_admin_security_recv);
  EXPECT_VALUE(a::sanitize, nvme_admin_sanitize_nvm);
  EXPECT_VALUE(a::get_lba_status, nvme_admin_get_lba_status);
  using i = io_opcode;
  EXPECT_VALUE(i::flush, nvme_cmd_flush);
  EXPECT_VALUE(i::write, nvme_cmd_write);
  EXPECT_VALUE(i::read, nvme_cmd_read);
  EXPECT_VALUE(i::write_uncorrectable, nvme_cmd_write_uncor);
  EXPECT_VALUE(i::compare, nvme_cmd_compare);
  EXPECT_VALUE(i::write_zeroes, nvme_cmd_write_zeroes);
  EXPECT_VALUE(i::dataset_management, nvme_cmd_dsm);
  EXPECT_VALUE(i::verify, nvme_cmd_verify);
  EXPECT_VALUE(i::reservation_register, nvme_cmd_resv_register);
  EXPECT_VALUE(i::reservation_report, nvme_cmd_resv_report);
  EXPECT_VALUE(i::reservation_acquire, nvme_cmd_resv_acquire);
  EXPECT_VALUE(i::reservation_release, nvme_cmd_resv_release);
}

TEST(libnvme, has_the_same_generic_status_codes) {
  using g = generic_status;
  EXPECT_VALUE(g::successful_completion, NVME_SC_SUCCESS);
  EXPECT_VALUE(g::invalid_command_opcode, NVME_SC_INVALID_OPCODE);
  EXPECT_VALUE(g::invalid_field_in_command, NVME_SC_INVALID_FIELD);
  EXPECT_VALUE(g::command_id_conflict, NVME_SC_CMDID_CONFLICT);
  EXPECT_VALUE(g::data_transfer_error, NVME_SC_DATA_XFER_ERROR);
  EXPECT_VALUE(g::commands_aborted_due_to_power_loss_notification, NVME_SC_POWER_LOSS);
  EXPECT_VALUE(g::internal_error, NVME_SC_INTERNAL);
  EXPECT_VALUE(g::command_abort_requested, NVME_SC_ABORT_REQ);
  EXPECT_VALUE(g::command_aborted_due_to_sq_deletion, NVME_SC_ABORT_QUEUE);
  EXPECT_VALUE(g::command_aborted_due_to_failed_fused_command, NVME_SC_FUSED_FAIL);
  EXPECT_VALUE(g::command_aborted_due_to_missing_fused_command, NVME_SC_FUSED_MISSING);
  EXPECT_VALUE(g::invalid_namespace_or_format, NVME_SC_INVALID_NS);
  EXPECT_VALUE(g::command_sequence_error, NVME_SC_CMD_SEQ_ERROR);
  EXPECT_VALUE(g::invalid_sgl_segment_descriptor, NVME_SC_SGL_INVALID_LAST);
  EXPECT_VALUE(g::invalid_number_of_sgl_descriptors, NVME_SC_SGL_INVALID_COUNT);
  EXPECT_VALUE(g::data_sgl_length_invalid, NVME_SC_SGL_INVALID_DATA);
  EXPECT_VALUE(g::metadata_sgl_length_invalid, NVME_SC_SGL_INVALID_METADATA);
  EXPECT_VALUE(g::sgl_descriptor_type_invalid, NVME_SC_SGL_INVALID_TYPE);
  EXPECT_VALUE(g::invalid_use_of_controller_memory_buffer, NVME_SC_CMB_INVALID_USE);
  EXPECT_VALUE(g::prp_offset_invalid, NVME_SC_PRP_INVALID_OFFSET);
  EXPECT_VALUE(g::atomic_write_unit_exceeded, NVME_SC_AWU_EXCEEDED);
  EXPECT_VALUE(g::operation_denied, NVME_SC_OP_DENIED);
  EXPECT_VALUE(g::sgl_offset_invalid, NVME_SC_SGL_INVALID_OFFSET);
  EXPECT_VALUE(g::host_identifier_inconsistent_format, NVME_SC_HOSTID_FORMAT);
  EXPECT_VALUE(g::keep_alive_timer_expired, NVME_SC_KAT_EXPIRED);
  EXPECT_VALUE(g::keep_alive_timeout_invalid, NVME_SC_KAT_INVALID);
  EXPECT_VALUE(g::command_aborted_due_to_preempt_and_abort, NVME_SC_CMD_ABORTED_PREMEPT);
  EXPECT_VALUE(g::sanitize_failed, NVME_SC_SANITIZE_FAILED);
  EXPECT_VALUE(g::sanitize_in_progress, NVME_SC_SANITIZE_IN_PROGRESS);
  EXPECT_VALUE(g::sgl_data_block_granularity_invalid, NVME_SC_SGL_INVALID_GRANULARITY);
  EXPECT_VALUE(g::command_not_supported_for_queue_in_cmb, NVME_SC_CMD_IN_CMBQ_NOT_SUPP);
  EXPECT_VALUE(g::namespace_is_write_protected, NVME_SC_NS_WRITE_PROTECTED);
  EXPECT_VALUE(g::command_interrupted, NVME_SC_CMD_INTERRUPTED);
  EXPECT_VALUE(g::transient_transport_error, NVME_SC_TRAN_TPORT_ERROR);
  EXPECT_VALUE(g::lba_out_of_range, NVME_SC_LBA_RANGE);
  EXPECT_VALUE(g::capacity_exceeded, NVME_SC_CAP_EXCEEDED);
  EXPECT_VALUE(g::namespace_not_ready, NVME_SC_NS_NOT_READY);
  EXPECT_VALUE(g::reservation_conflict, NVME_SC_RESERVATION_CONFLICT);
  EXPECT_VALUE(g::format_in_progress, NVME_SC_FORMAT_IN_PROGRESS);
}

TEST(libnvme, has_the_same_command_specific_and_media_status_codes) {
  using c = command_specific_status;
  EXPECT_VALUE(c::completion_queue_invalid, NVME_SC_CQ_INVALID);
  EXPECT_VALUE(c::invalid_queue_identifier, NVME_SC_QID_INVALID);
  EXPECT_VALUE(c::invalid_queue_size, NVME_SC_QUEUE_SIZE);
  EXPECT_VALUE(c::abort_command_limit_exceeded, NVME_SC_ABORT_LIMIT);
  EXPECT_VALUE(c::asynchronous_event_request_limit_exceeded, NVME_SC_ASYNC_LIMIT);
  EXPECT_VALUE(c::invalid_firmware_slot, NVME_SC_FIRMWARE_SLOT);
  EXPECT_VALUE(c::invalid_firmware_image, NVME_SC_FIRMWARE_IMAGE);
  EXPECT_VALUE(c::invalid_interrupt_vector, NVME_SC_INVALID_VECTOR);
  EXPECT_VALUE(c::invalid_log_page, NVME_SC_INVALID_LOG_PAGE);
  EXPECT_VALUE(c::invalid_format, NVME_SC_INVALID_FORMAT);
  EXPECT_VALUE(c::firmware_activation_requires_conventional_reset, NVME_SC_FW_NEEDS_CONV_RESET);
  EXPECT_VALUE(c::invalid_queue_deletion, NVME_SC_INVALID_QUEUE);
  EXPECT_VALUE(c::feature_identifier_not_saveable, NVME_SC_FEATURE_NOT_SAVEABLE);
  EXPECT_VALUE(c::feature_not_changeable, NVME_SC_FEATURE_NOT_CHANGEABLE);
  EXPECT_VALUE(c::feature_not_namespace_specific, NVME_SC_FEATURE_NOT_PER_NS);
  EXPECT_VALUE(c::firmware_activation_requires_nvm_subsystem_reset, NVME_SC_FW_NEEDS_SUBSYS_RESET);
  EXPECT_VALUE(c::firmware_activation_requires_controller_level_reset, NVME_SC_FW_NEEDS_RESET);
  EXPECT_VALUE(c::firmware_activation_requires_maximum_time_violation, NVME_SC_FW_NEEDS_MAX_TIME);
  EXPECT_VALUE(c::firmware_activation_prohibited, NVME_SC_FW_ACTIVATE_PROHIBITED);
  EXPECT_VALUE(c::overlapping_range, NVME_SC_OVERLAPPING_RANGE);
  EXPECT_VALUE(c::namespace_insufficient_capacity, NVME_SC_NS_INSUFFICIENT_CAP);
  EXPECT_VALUE(c::namespace_identifier_unavailable, NVME_SC_NS_ID_UNAVAILABLE);
  EXPECT_VALUE(c::namespace_already_attached, NVME_SC_NS_ALREADY_ATTACHED);
  EXPECT_VALUE(c::namespace_is_private, NVME_SC_NS_IS_PRIVATE);
  EXPECT_VALUE(c::namespace_not_attached, NVME_SC_NS_NOT_ATTACHED);
  EXPECT_VALUE(c::thin_provisioning_not_supported, NVME_SC_THIN_PROV_NOT_SUPP);
  EXPECT_VALUE(c::controller_list_invalid, NVME_SC_CTRL_LIST_INVALID);
  EXPECT_VALUE(c::device_self_test_in_progress, NVME_SC_SELF_TEST_IN_PROGRESS);
  EXPECT_VALUE(c::conflicting_attributes, NVME_SC_BAD_ATTRIBUTES);
  EXPECT_VALUE(c::invalid_protection_information, NVME_SC_INVALID_PI);
  EXPECT_VALUE(c::attempted_write_to_read_only_range, NVME_SC_READ_ONLY);
  using m = media_status;
  EXPECT_VALUE(m::write_fault, NVME_SC_WRITE_FAULT);
  EXPECT_VALUE(m::unrecovered_read_error, NVME_SC_READ_ERROR);
  EXPECT_VALUE(m::end_to_end_guard_check_error, NVME_SC_GUARD_CHECK);
  EXPECT_VALUE(m::end_to_end_application_tag_check_error, NVME_SC_APPTAG_CHECK);
  EXPECT_VALUE(m::end_to_end_reference_tag_check_error, NVME_SC_REFTAG_CHECK);
  EXPECT_VALUE(m::compare_failure, NVME_SC_COMPARE_FAILED);
  EXPECT_VALUE(m::access_denied, NVME_SC_ACCESS_DENIED);
  EXPECT_VALUE(m::deallocated_or_unwritten_logical_block, NVME_SC_UNWRITTEN_BLOCK);
  using t = status_code_type;
  EXPECT_VALUE(t::generic_command_status, NVME_SCT_GENERIC);
  EXPECT_VALUE(t::command_specific_status, NVME_SCT_CMD_SPECIFIC);
  EXPECT_VALUE(t::media_and_data_integrity_errors, NVME_SCT_MEDIA);
  EXPECT_VALUE(t::path_related_status, NVME_SCT_PATH);
  EXPECT_VALUE(t::vendor_specific, NVME_SCT_VS);
  EXPECT_VALUE(do_not_retry, NVME_SC_DNR);
  EXPECT_VALUE(more_information, NVME_SC_MORE);
  EXPECT_EQ(status_field(m::compare_failure), NVME_SCT_MEDIA << NVME_SCT_SHIFT | NVME_SC_COMPARE_FAILED);
}

TEST(libnvme, has_the_same_registers_and_fields) {
  namespace r = registers;
  EXPECT_VALUE(r::cap, NVME_REG_CAP);
  EXPECT_VALUE(r::vs, NVME_REG_VS);
  EXPECT_VALUE(r::intms, NVME_REG_INTMS);
  EXPECT_VALUE(r::intmc, NVME_REG_INTMC);
  EXPECT_VALUE(r::cc, NVME_REG_CC);
  EXPECT_VALUE(r::csts, NVME_REG_CSTS);
  EXPECT_VALUE(r::nssr, NVME_REG_NSSR);
  EXPECT_VALUE(r::aqa, NVME_REG_AQA);
  EXPECT_VALUE(r::asq, NVME_REG_ASQ);
  EXPECT_VALUE(r::acq, NVME_REG_ACQ);
  EXPECT_VALUE(r::cmbloc, NVME_REG_CMBLOC);
  EXPECT_VALUE(r::cmbsz, NVME_REG_CMBSZ);
  EXPECT_VALUE(r::bpinfo, NVME_REG_BPINFO);
  EXPECT_VALUE(r::bprsel, NVME_REG_BPRSEL);
  EXPECT_VALUE(r::bpmbl, NVME_REG_BPMBL);
  EXPECT_VALUE(r::cmbmsc, NVME_REG_CMBMSC);
  EXPECT_VALUE(r::cmbsts, NVME_REG_CMBSTS);
  EXPECT_VALUE(r::pmrcap, NVME_REG_PMRCAP);
  EXPECT_VALUE(r::pmrctl, NVME_REG_PMRCTL);
  EXPECT_VALUE(r::pmrsts, NVME_REG_PMRSTS);

  std::uint64_t const cap = controller_capabilities::make(1024, true, 7, 2, 1, 1, 3);
  EXPECT_EQ(NVME_CAP_MQES(cap), 1023u);
  EXPECT_EQ(NVME_CAP_CQR(cap), 1u);
  EXPECT_EQ(NVME_CAP_TO(cap), 7u);
  EXPECT_EQ(NVME_CAP_DSTRD(cap), 2u);
  EXPECT_EQ(NVME_CAP_CSS(cap), static_cast<unsigned>(NVME_CAP_CSS_NVM));
  EXPECT_EQ(NVME_CAP_MPSMIN(cap), 1u);
  EXPECT_EQ(NVME_CAP_MPSMAX(cap), 3u);
  std::uint32_t const cc = controller_configuration::with_shutdown(controller_configuration::make(true, 16384),
                                                                   shutdown_notification::abrupt);
  EXPECT_EQ(NVME_CC_EN(cc), 1u);
  EXPECT_EQ(NVME_CC_CSS(cc), static_cast<unsigned>(NVME_CC_CSS_NVM));
  EXPECT_EQ(NVME_CC_MPS(cc), 2u);
  EXPECT_EQ(NVME_CC_SHN(cc), static_cast<unsigned>(NVME_CC_SHN_ABRUPT));
  EXPECT_EQ(NVME_CC_IOSQES(cc), 6u);
  EXPECT_EQ(NVME_CC_IOCQES(cc), 4u);
  EXPECT_EQ(NVME_CC_AMS(cc), static_cast<unsigned>(NVME_CC_AMS_RR));
  std::uint32_t const weighted =
      controller_configuration::make(true, 4096, 6, 4, arbitration_mechanism::weighted_round_robin);
  EXPECT_EQ(NVME_CC_AMS(weighted), static_cast<unsigned>(NVME_CC_AMS_WRRU));
  EXPECT_FALSE(controller_capabilities{cap}.weighted_round_robin());
  std::uint64_t const weighs = cap | std::uint64_t{NVME_CAP_AMS_WRR} << NVME_CAP_AMS_SHIFT;
  EXPECT_TRUE(controller_capabilities{weighs}.weighted_round_robin());
  arbitration const weights = arbitration{3}.with_weights(256, 16, 1);
  EXPECT_EQ(NVME_GET(weights.value, FEAT_ARBITRATION_BURST), 3u);
  EXPECT_EQ(NVME_GET(weights.value, FEAT_ARBITRATION_HPW), 255u);
  EXPECT_EQ(NVME_GET(weights.value, FEAT_ARBITRATION_MPW), 15u);
  EXPECT_EQ(NVME_GET(weights.value, FEAT_ARBITRATION_LPW), 0u);
  std::uint32_t const csts = controller_status::make(true, true, shutdown_status::complete);
  EXPECT_EQ(NVME_CSTS_RDY(csts), 1u);
  EXPECT_EQ(NVME_CSTS_CFS(csts), 1u);
  EXPECT_EQ(NVME_CSTS_SHST(csts), static_cast<unsigned>(NVME_CSTS_SHST_CMPLT));
  std::uint32_t const aqa = admin_queue_attributes::make(32, 64);
  EXPECT_EQ(NVME_AQA_ASQS(aqa), 31u);
  EXPECT_EQ(NVME_AQA_ACQS(aqa), 63u);
}

TEST(libnvme, has_the_same_features_log_pages_and_identify_structures) {
  using f = feature_id;
  EXPECT_VALUE(f::arbitration, NVME_FEAT_FID_ARBITRATION);
  EXPECT_VALUE(f::power_management, NVME_FEAT_FID_POWER_MGMT);
  EXPECT_VALUE(f::lba_range_type, NVME_FEAT_FID_LBA_RANGE);
  EXPECT_VALUE(f::temperature_threshold, NVME_FEAT_FID_TEMP_THRESH);
  EXPECT_VALUE(f::error_recovery, NVME_FEAT_FID_ERR_RECOVERY);
  EXPECT_VALUE(f::volatile_write_cache, NVME_FEAT_FID_VOLATILE_WC);
  EXPECT_VALUE(f::number_of_queues, NVME_FEAT_FID_NUM_QUEUES);
  EXPECT_VALUE(f::interrupt_coalescing, NVME_FEAT_FID_IRQ_COALESCE);
  EXPECT_VALUE(f::interrupt_vector_configuration, NVME_FEAT_FID_IRQ_CONFIG);
  EXPECT_VALUE(f::write_atomicity_normal, NVME_FEAT_FID_WRITE_ATOMIC);
  EXPECT_VALUE(f::asynchronous_event_configuration, NVME_FEAT_FID_ASYNC_EVENT);
  EXPECT_VALUE(f::autonomous_power_state_transition, NVME_FEAT_FID_AUTO_PST);
  EXPECT_VALUE(f::host_memory_buffer, NVME_FEAT_FID_HOST_MEM_BUF);
  EXPECT_VALUE(f::timestamp, NVME_FEAT_FID_TIMESTAMP);
  EXPECT_VALUE(f::keep_alive_timer, NVME_FEAT_FID_KATO);
  EXPECT_VALUE(f::host_controlled_thermal_management, NVME_FEAT_FID_HCTM);
  EXPECT_VALUE(f::non_operational_power_state_config, NVME_FEAT_FID_NOPSC);
  EXPECT_VALUE(f::read_recovery_level_config, NVME_FEAT_FID_RRL);
  EXPECT_VALUE(f::predictable_latency_mode_config, NVME_FEAT_FID_PLM_CONFIG);
  EXPECT_VALUE(f::predictable_latency_mode_window, NVME_FEAT_FID_PLM_WINDOW);
  EXPECT_VALUE(f::lba_status_information_report_interval, NVME_FEAT_FID_LBA_STS_INTERVAL);
  EXPECT_VALUE(f::host_behavior_support, NVME_FEAT_FID_HOST_BEHAVIOR);
  EXPECT_VALUE(f::sanitize_config, NVME_FEAT_FID_SANITIZE);
  EXPECT_VALUE(f::endurance_group_event_configuration, NVME_FEAT_FID_ENDURANCE_EVT_CFG);
  EXPECT_VALUE(f::software_progress_marker, NVME_FEAT_FID_SW_PROGRESS);
  EXPECT_VALUE(f::host_identifier, NVME_FEAT_FID_HOST_ID);
  EXPECT_VALUE(f::reservation_notification_mask, NVME_FEAT_FID_RESV_MASK);
  EXPECT_VALUE(f::reservation_persistence, NVME_FEAT_FID_RESV_PERSIST);
  EXPECT_VALUE(f::namespace_write_protection_config, NVME_FEAT_FID_WRITE_PROTECT);
  using l = log_page_id;
  EXPECT_VALUE(l::error_information, NVME_LOG_LID_ERROR);
  EXPECT_VALUE(l::smart_health_information, NVME_LOG_LID_SMART);
  EXPECT_VALUE(l::firmware_slot_information, NVME_LOG_LID_FW_SLOT);
  EXPECT_VALUE(l::changed_namespace_list, NVME_LOG_LID_CHANGED_NS);
  EXPECT_VALUE(l::commands_supported_and_effects, NVME_LOG_LID_CMD_EFFECTS);
  EXPECT_VALUE(l::device_self_test, NVME_LOG_LID_DEVICE_SELF_TEST);
  EXPECT_VALUE(l::telemetry_host_initiated, NVME_LOG_LID_TELEMETRY_HOST);
  EXPECT_VALUE(l::telemetry_controller_initiated, NVME_LOG_LID_TELEMETRY_CTRL);
  EXPECT_VALUE(l::endurance_group_information, NVME_LOG_LID_ENDURANCE_GROUP);
  EXPECT_VALUE(l::persistent_event_log, NVME_LOG_LID_PERSISTENT_EVENT);
  EXPECT_VALUE(l::reservation_notification, NVME_LOG_LID_RESERVATION);
  EXPECT_VALUE(l::sanitize_status, NVME_LOG_LID_SANITIZE);
  using c = identify_cns;
  EXPECT_VALUE(c::identify_namespace, NVME_IDENTIFY_CNS_NS);
  EXPECT_VALUE(c::identify_controller, NVME_IDENTIFY_CNS_CTRL);
  EXPECT_VALUE(c::active_namespace_list, NVME_IDENTIFY_CNS_NS_ACTIVE_LIST);
  EXPECT_VALUE(c::namespace_identification_descriptor_list, NVME_IDENTIFY_CNS_NS_DESC_LIST);
  EXPECT_VALUE(c::nvm_set_list, NVME_IDENTIFY_CNS_NVMSET_LIST);
  EXPECT_VALUE(c::allocated_namespace_list, NVME_IDENTIFY_CNS_ALLOCATED_NS_LIST);
  EXPECT_VALUE(c::allocated_namespace, NVME_IDENTIFY_CNS_ALLOCATED_NS);
  EXPECT_VALUE(c::namespace_controller_list, NVME_IDENTIFY_CNS_NS_CTRL_LIST);
  EXPECT_VALUE(c::controller_list, NVME_IDENTIFY_CNS_CTRL_LIST);
}

TEST(libnvme, has_the_same_optional_command_bits) {
  using a = optional_admin_command;
  EXPECT_VALUE(a::security, NVME_CTRL_OACS_SECURITY);
  EXPECT_VALUE(a::format_nvm, NVME_CTRL_OACS_FORMAT);
  EXPECT_VALUE(a::firmware, NVME_CTRL_OACS_FW);
  EXPECT_VALUE(a::namespace_management, NVME_CTRL_OACS_NS_MGMT);
  EXPECT_VALUE(a::device_self_test, NVME_CTRL_OACS_SELF_TEST);
  EXPECT_VALUE(a::directives, NVME_CTRL_OACS_DIRECTIVES);
  EXPECT_VALUE(a::nvme_mi, NVME_CTRL_OACS_NVME_MI);
  EXPECT_VALUE(a::virtualization_management, NVME_CTRL_OACS_VIRT_MGMT);
  EXPECT_VALUE(a::doorbell_buffer_config, NVME_CTRL_OACS_DBBUF_CFG);
  EXPECT_VALUE(a::get_lba_status, NVME_CTRL_OACS_LBA_STATUS);
  using n = optional_nvm_command;
  EXPECT_VALUE(n::compare, NVME_CTRL_ONCS_COMPARE);
  EXPECT_VALUE(n::write_uncorrectable, NVME_CTRL_ONCS_WRITE_UNCORRECTABLE);
  EXPECT_VALUE(n::dataset_management, NVME_CTRL_ONCS_DSM);
  EXPECT_VALUE(n::write_zeroes, NVME_CTRL_ONCS_WRITE_ZEROES);
  EXPECT_VALUE(n::save_and_select, NVME_CTRL_ONCS_SAVE_FEATURES);
  EXPECT_VALUE(n::reservations, NVME_CTRL_ONCS_RESERVATIONS);
  EXPECT_VALUE(n::timestamp, NVME_CTRL_ONCS_TIMESTAMP);
  EXPECT_VALUE(n::verify, NVME_CTRL_ONCS_VERIFY);
}

}  // namespace
}  // namespace forebay::nvme
