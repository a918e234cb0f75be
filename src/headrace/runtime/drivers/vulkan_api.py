"""Vulkan structures and functions for ctypes; written by tools/generate_vulkan_binding.py."""

# fmt: off
# ruff: noqa: I001
from __future__ import annotations

from ctypes import (
    Structure,
    c_char,
    c_float,
    c_int32,
    c_size_t,
    c_uint32,
    c_uint64,
    c_uint8,
    c_void_p,
)
from typing import Any


class VkApplicationInfo(Structure):
    """`VkApplicationInfo` as the registry has it."""
    STYPE = 0
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("pApplicationName", c_void_p), ("applicationVersion", c_uint32), ("pEngineName", c_void_p), ("engineVersion", c_uint32), ("apiVersion", c_uint32)]


class VkInstanceCreateInfo(Structure):
    """`VkInstanceCreateInfo` as the registry has it."""
    STYPE = 1
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("flags", c_uint32), ("pApplicationInfo", c_void_p), ("enabledLayerCount", c_uint32), ("ppEnabledLayerNames", c_void_p), ("enabledExtensionCount", c_uint32), ("ppEnabledExtensionNames", c_void_p)]


class VkDeviceCreateInfo(Structure):
    """`VkDeviceCreateInfo` as the registry has it."""
    STYPE = 3
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("flags", c_uint32), ("queueCreateInfoCount", c_uint32), ("pQueueCreateInfos", c_void_p), ("enabledLayerCount", c_uint32), ("ppEnabledLayerNames", c_void_p), ("enabledExtensionCount", c_uint32), ("ppEnabledExtensionNames", c_void_p), ("pEnabledFeatures", c_void_p)]


class VkDeviceQueueCreateInfo(Structure):
    """`VkDeviceQueueCreateInfo` as the registry has it."""
    STYPE = 2
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("flags", c_uint32), ("queueFamilyIndex", c_uint32), ("queueCount", c_uint32), ("pQueuePriorities", c_void_p)]


class VkPhysicalDeviceLimits(Structure):
    """`VkPhysicalDeviceLimits` as the registry has it."""
    _fields_ = [("maxImageDimension1D", c_uint32), ("maxImageDimension2D", c_uint32), ("maxImageDimension3D", c_uint32), ("maxImageDimensionCube", c_uint32), ("maxImageArrayLayers", c_uint32), ("maxTexelBufferElements", c_uint32), ("maxUniformBufferRange", c_uint32), ("maxStorageBufferRange", c_uint32), ("maxPushConstantsSize", c_uint32), ("maxMemoryAllocationCount", c_uint32), ("maxSamplerAllocationCount", c_uint32), ("bufferImageGranularity", c_uint64), ("sparseAddressSpaceSize", c_uint64), ("maxBoundDescriptorSets", c_uint32), ("maxPerStageDescriptorSamplers", c_uint32), ("maxPerStageDescriptorUniformBuffers", c_uint32), ("maxPerStageDescriptorStorageBuffers", c_uint32), ("maxPerStageDescriptorSampledImages", c_uint32), ("maxPerStageDescriptorStorageImages", c_uint32), ("maxPerStageDescriptorInputAttachments", c_uint32), ("maxPerStageResources", c_uint32), ("maxDescriptorSetSamplers", c_uint32), ("maxDescriptorSetUniformBuffers", c_uint32), ("maxDescriptorSetUniformBuffersDynamic", c_uint32), ("maxDescriptorSetStorageBuffers", c_uint32), ("maxDescriptorSetStorageBuffersDynamic", c_uint32), ("maxDescriptorSetSampledImages", c_uint32), ("maxDescriptorSetStorageImages", c_uint32), ("maxDescriptorSetInputAttachments", c_uint32), ("maxVertexInputAttributes", c_uint32), ("maxVertexInputBindings", c_uint32), ("maxVertexInputAttributeOffset", c_uint32), ("maxVertexInputBindingStride", c_uint32), ("maxVertexOutputComponents", c_uint32), ("maxTessellationGenerationLevel", c_uint32), ("maxTessellationPatchSize", c_uint32), ("maxTessellationControlPerVertexInputComponents", c_uint32), ("maxTessellationControlPerVertexOutputComponents", c_uint32), ("maxTessellationControlPerPatchOutputComponents", c_uint32), ("maxTessellationControlTotalOutputComponents", c_uint32), ("maxTessellationEvaluationInputComponents", c_uint32), ("maxTessellationEvaluationOutputComponents", c_uint32), ("maxGeometryShaderInvocations", c_uint32), ("maxGeometryInputComponents", c_uint32), ("maxGeometryOutputComponents", c_uint32), ("maxGeometryOutputVertices", c_uint32), ("maxGeometryTotalOutputComponents", c_uint32), ("maxFragmentInputComponents", c_uint32), ("maxFragmentOutputAttachments", c_uint32), ("maxFragmentDualSrcAttachments", c_uint32), ("maxFragmentCombinedOutputResources", c_uint32), ("maxComputeSharedMemorySize", c_uint32), ("maxComputeWorkGroupCount", c_uint32 * 3), ("maxComputeWorkGroupInvocations", c_uint32), ("maxComputeWorkGroupSize", c_uint32 * 3), ("subPixelPrecisionBits", c_uint32), ("subTexelPrecisionBits", c_uint32), ("mipmapPrecisionBits", c_uint32), ("maxDrawIndexedIndexValue", c_uint32), ("maxDrawIndirectCount", c_uint32), ("maxSamplerLodBias", c_float), ("maxSamplerAnisotropy", c_float), ("maxViewports", c_uint32), ("maxViewportDimensions", c_uint32 * 2), ("viewportBoundsRange", c_float * 2), ("viewportSubPixelBits", c_uint32), ("minMemoryMapAlignment", c_size_t), ("minTexelBufferOffsetAlignment", c_uint64), ("minUniformBufferOffsetAlignment", c_uint64), ("minStorageBufferOffsetAlignment", c_uint64), ("minTexelOffset", c_int32), ("maxTexelOffset", c_uint32), ("minTexelGatherOffset", c_int32), ("maxTexelGatherOffset", c_uint32), ("minInterpolationOffset", c_float), ("maxInterpolationOffset", c_float), ("subPixelInterpolationOffsetBits", c_uint32), ("maxFramebufferWidth", c_uint32), ("maxFramebufferHeight", c_uint32), ("maxFramebufferLayers", c_uint32), ("framebufferColorSampleCounts", c_uint32), ("framebufferDepthSampleCounts", c_uint32), ("framebufferStencilSampleCounts", c_uint32), ("framebufferNoAttachmentsSampleCounts", c_uint32), ("maxColorAttachments", c_uint32), ("sampledImageColorSampleCounts", c_uint32), ("sampledImageIntegerSampleCounts", c_uint32), ("sampledImageDepthSampleCounts", c_uint32), ("sampledImageStencilSampleCounts", c_uint32), ("storageImageSampleCounts", c_uint32), ("maxSampleMaskWords", c_uint32), ("timestampComputeAndGraphics", c_uint32), ("timestampPeriod", c_float), ("maxClipDistances", c_uint32), ("maxCullDistances", c_uint32), ("maxCombinedClipAndCullDistances", c_uint32), ("discreteQueuePriorities", c_uint32), ("pointSizeRange", c_float * 2), ("lineWidthRange", c_float * 2), ("pointSizeGranularity", c_float), ("lineWidthGranularity", c_float), ("strictLines", c_uint32), ("standardSampleLocations", c_uint32), ("optimalBufferCopyOffsetAlignment", c_uint64), ("optimalBufferCopyRowPitchAlignment", c_uint64), ("nonCoherentAtomSize", c_uint64)]


class VkPhysicalDeviceSparseProperties(Structure):
    """`VkPhysicalDeviceSparseProperties` as the registry has it."""
    _fields_ = [("residencyStandard2DBlockShape", c_uint32), ("residencyStandard2DMultisampleBlockShape", c_uint32), ("residencyStandard3DBlockShape", c_uint32), ("residencyAlignedMipSize", c_uint32), ("residencyNonResidentStrict", c_uint32)]


class VkPhysicalDeviceProperties(Structure):
    """`VkPhysicalDeviceProperties` as the registry has it."""
    _fields_ = [("apiVersion", c_uint32), ("driverVersion", c_uint32), ("vendorID", c_uint32), ("deviceID", c_uint32), ("deviceType", c_int32), ("deviceName", c_char * 256), ("pipelineCacheUUID", c_uint8 * 16), ("limits", VkPhysicalDeviceLimits), ("sparseProperties", VkPhysicalDeviceSparseProperties)]


class VkPhysicalDeviceProperties2(Structure):
    """`VkPhysicalDeviceProperties2` as the registry has it."""
    STYPE = 1000059001
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("properties", VkPhysicalDeviceProperties)]


class VkPhysicalDeviceVulkan11Properties(Structure):
    """`VkPhysicalDeviceVulkan11Properties` as the registry has it."""
    STYPE = 50
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("deviceUUID", c_uint8 * 16), ("driverUUID", c_uint8 * 16), ("deviceLUID", c_uint8 * 8), ("deviceNodeMask", c_uint32), ("deviceLUIDValid", c_uint32), ("subgroupSize", c_uint32), ("subgroupSupportedStages", c_uint32), ("subgroupSupportedOperations", c_uint32), ("subgroupQuadOperationsInAllStages", c_uint32), ("pointClippingBehavior", c_int32), ("maxMultiviewViewCount", c_uint32), ("maxMultiviewInstanceIndex", c_uint32), ("protectedNoFault", c_uint32), ("maxPerSetDescriptors", c_uint32), ("maxMemoryAllocationSize", c_uint64)]


class VkConformanceVersion(Structure):
    """`VkConformanceVersion` as the registry has it."""
    _fields_ = [("major", c_uint8), ("minor", c_uint8), ("subminor", c_uint8), ("patch", c_uint8)]


class VkPhysicalDeviceVulkan12Properties(Structure):
    """`VkPhysicalDeviceVulkan12Properties` as the registry has it."""
    STYPE = 52
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("driverID", c_int32), ("driverName", c_char * 256), ("driverInfo", c_char * 256), ("conformanceVersion", VkConformanceVersion), ("denormBehaviorIndependence", c_int32), ("roundingModeIndependence", c_int32), ("shaderSignedZeroInfNanPreserveFloat16", c_uint32), ("shaderSignedZeroInfNanPreserveFloat32", c_uint32), ("shaderSignedZeroInfNanPreserveFloat64", c_uint32), ("shaderDenormPreserveFloat16", c_uint32), ("shaderDenormPreserveFloat32", c_uint32), ("shaderDenormPreserveFloat64", c_uint32), ("shaderDenormFlushToZeroFloat16", c_uint32), ("shaderDenormFlushToZeroFloat32", c_uint32), ("shaderDenormFlushToZeroFloat64", c_uint32), ("shaderRoundingModeRTEFloat16", c_uint32), ("shaderRoundingModeRTEFloat32", c_uint32), ("shaderRoundingModeRTEFloat64", c_uint32), ("shaderRoundingModeRTZFloat16", c_uint32), ("shaderRoundingModeRTZFloat32", c_uint32), ("shaderRoundingModeRTZFloat64", c_uint32), ("maxUpdateAfterBindDescriptorsInAllPools", c_uint32), ("shaderUniformBufferArrayNonUniformIndexingNative", c_uint32), ("shaderSampledImageArrayNonUniformIndexingNative", c_uint32), ("shaderStorageBufferArrayNonUniformIndexingNative", c_uint32), ("shaderStorageImageArrayNonUniformIndexingNative", c_uint32), ("shaderInputAttachmentArrayNonUniformIndexingNative", c_uint32), ("robustBufferAccessUpdateAfterBind", c_uint32), ("quadDivergentImplicitLod", c_uint32), ("maxPerStageDescriptorUpdateAfterBindSamplers", c_uint32), ("maxPerStageDescriptorUpdateAfterBindUniformBuffers", c_uint32), ("maxPerStageDescriptorUpdateAfterBindStorageBuffers", c_uint32), ("maxPerStageDescriptorUpdateAfterBindSampledImages", c_uint32), ("maxPerStageDescriptorUpdateAfterBindStorageImages", c_uint32), ("maxPerStageDescriptorUpdateAfterBindInputAttachments", c_uint32), ("maxPerStageUpdateAfterBindResources", c_uint32), ("maxDescriptorSetUpdateAfterBindSamplers", c_uint32), ("maxDescriptorSetUpdateAfterBindUniformBuffers", c_uint32), ("maxDescriptorSetUpdateAfterBindUniformBuffersDynamic", c_uint32), ("maxDescriptorSetUpdateAfterBindStorageBuffers", c_uint32), ("maxDescriptorSetUpdateAfterBindStorageBuffersDynamic", c_uint32), ("maxDescriptorSetUpdateAfterBindSampledImages", c_uint32), ("maxDescriptorSetUpdateAfterBindStorageImages", c_uint32), ("maxDescriptorSetUpdateAfterBindInputAttachments", c_uint32), ("supportedDepthResolveModes", c_uint32), ("supportedStencilResolveModes", c_uint32), ("independentResolveNone", c_uint32), ("independentResolve", c_uint32), ("filterMinmaxSingleComponentFormats", c_uint32), ("filterMinmaxImageComponentMapping", c_uint32), ("maxTimelineSemaphoreValueDifference", c_uint64), ("framebufferIntegerColorSampleCounts", c_uint32)]


class VkPhysicalDeviceFeatures(Structure):
    """`VkPhysicalDeviceFeatures` as the registry has it."""
    _fields_ = [("robustBufferAccess", c_uint32), ("fullDrawIndexUint32", c_uint32), ("imageCubeArray", c_uint32), ("independentBlend", c_uint32), ("geometryShader", c_uint32), ("tessellationShader", c_uint32), ("sampleRateShading", c_uint32), ("dualSrcBlend", c_uint32), ("logicOp", c_uint32), ("multiDrawIndirect", c_uint32), ("drawIndirectFirstInstance", c_uint32), ("depthClamp", c_uint32), ("depthBiasClamp", c_uint32), ("fillModeNonSolid", c_uint32), ("depthBounds", c_uint32), ("wideLines", c_uint32), ("largePoints", c_uint32), ("alphaToOne", c_uint32), ("multiViewport", c_uint32), ("samplerAnisotropy", c_uint32), ("textureCompressionETC2", c_uint32), ("textureCompressionASTC_LDR", c_uint32), ("textureCompressionBC", c_uint32), ("occlusionQueryPrecise", c_uint32), ("pipelineStatisticsQuery", c_uint32), ("vertexPipelineStoresAndAtomics", c_uint32), ("fragmentStoresAndAtomics", c_uint32), ("shaderTessellationAndGeometryPointSize", c_uint32), ("shaderImageGatherExtended", c_uint32), ("shaderStorageImageExtendedFormats", c_uint32), ("shaderStorageImageMultisample", c_uint32), ("shaderStorageImageReadWithoutFormat", c_uint32), ("shaderStorageImageWriteWithoutFormat", c_uint32), ("shaderUniformBufferArrayDynamicIndexing", c_uint32), ("shaderSampledImageArrayDynamicIndexing", c_uint32), ("shaderStorageBufferArrayDynamicIndexing", c_uint32), ("shaderStorageImageArrayDynamicIndexing", c_uint32), ("shaderClipDistance", c_uint32), ("shaderCullDistance", c_uint32), ("shaderFloat64", c_uint32), ("shaderInt64", c_uint32), ("shaderInt16", c_uint32), ("shaderResourceResidency", c_uint32), ("shaderResourceMinLod", c_uint32), ("sparseBinding", c_uint32), ("sparseResidencyBuffer", c_uint32), ("sparseResidencyImage2D", c_uint32), ("sparseResidencyImage3D", c_uint32), ("sparseResidency2Samples", c_uint32), ("sparseResidency4Samples", c_uint32), ("sparseResidency8Samples", c_uint32), ("sparseResidency16Samples", c_uint32), ("sparseResidencyAliased", c_uint32), ("variableMultisampleRate", c_uint32), ("inheritedQueries", c_uint32)]


class VkPhysicalDeviceFeatures2(Structure):
    """`VkPhysicalDeviceFeatures2` as the registry has it."""
    STYPE = 1000059000
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("features", VkPhysicalDeviceFeatures)]


class VkPhysicalDeviceVulkan11Features(Structure):
    """`VkPhysicalDeviceVulkan11Features` as the registry has it."""
    STYPE = 49
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("storageBuffer16BitAccess", c_uint32), ("uniformAndStorageBuffer16BitAccess", c_uint32), ("storagePushConstant16", c_uint32), ("storageInputOutput16", c_uint32), ("multiview", c_uint32), ("multiviewGeometryShader", c_uint32), ("multiviewTessellationShader", c_uint32), ("variablePointersStorageBuffer", c_uint32), ("variablePointers", c_uint32), ("protectedMemory", c_uint32), ("samplerYcbcrConversion", c_uint32), ("shaderDrawParameters", c_uint32)]


class VkPhysicalDeviceVulkan12Features(Structure):
    """`VkPhysicalDeviceVulkan12Features` as the registry has it."""
    STYPE = 51
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("samplerMirrorClampToEdge", c_uint32), ("drawIndirectCount", c_uint32), ("storageBuffer8BitAccess", c_uint32), ("uniformAndStorageBuffer8BitAccess", c_uint32), ("storagePushConstant8", c_uint32), ("shaderBufferInt64Atomics", c_uint32), ("shaderSharedInt64Atomics", c_uint32), ("shaderFloat16", c_uint32), ("shaderInt8", c_uint32), ("descriptorIndexing", c_uint32), ("shaderInputAttachmentArrayDynamicIndexing", c_uint32), ("shaderUniformTexelBufferArrayDynamicIndexing", c_uint32), ("shaderStorageTexelBufferArrayDynamicIndexing", c_uint32), ("shaderUniformBufferArrayNonUniformIndexing", c_uint32), ("shaderSampledImageArrayNonUniformIndexing", c_uint32), ("shaderStorageBufferArrayNonUniformIndexing", c_uint32), ("shaderStorageImageArrayNonUniformIndexing", c_uint32), ("shaderInputAttachmentArrayNonUniformIndexing", c_uint32), ("shaderUniformTexelBufferArrayNonUniformIndexing", c_uint32), ("shaderStorageTexelBufferArrayNonUniformIndexing", c_uint32), ("descriptorBindingUniformBufferUpdateAfterBind", c_uint32), ("descriptorBindingSampledImageUpdateAfterBind", c_uint32), ("descriptorBindingStorageImageUpdateAfterBind", c_uint32), ("descriptorBindingStorageBufferUpdateAfterBind", c_uint32), ("descriptorBindingUniformTexelBufferUpdateAfterBind", c_uint32), ("descriptorBindingStorageTexelBufferUpdateAfterBind", c_uint32), ("descriptorBindingUpdateUnusedWhilePending", c_uint32), ("descriptorBindingPartiallyBound", c_uint32), ("descriptorBindingVariableDescriptorCount", c_uint32), ("runtimeDescriptorArray", c_uint32), ("samplerFilterMinmax", c_uint32), ("scalarBlockLayout", c_uint32), ("imagelessFramebuffer", c_uint32), ("uniformBufferStandardLayout", c_uint32), ("shaderSubgroupExtendedTypes", c_uint32), ("separateDepthStencilLayouts", c_uint32), ("hostQueryReset", c_uint32), ("timelineSemaphore", c_uint32), ("bufferDeviceAddress", c_uint32), ("bufferDeviceAddressCaptureReplay", c_uint32), ("bufferDeviceAddressMultiDevice", c_uint32), ("vulkanMemoryModel", c_uint32), ("vulkanMemoryModelDeviceScope", c_uint32), ("vulkanMemoryModelAvailabilityVisibilityChains", c_uint32), ("shaderOutputViewportIndex", c_uint32), ("shaderOutputLayer", c_uint32), ("subgroupBroadcastDynamicId", c_uint32)]


class VkPhysicalDeviceVulkan13Features(Structure):
    """`VkPhysicalDeviceVulkan13Features` as the registry has it."""
    STYPE = 53
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("robustImageAccess", c_uint32), ("inlineUniformBlock", c_uint32), ("descriptorBindingInlineUniformBlockUpdateAfterBind", c_uint32), ("pipelineCreationCacheControl", c_uint32), ("privateData", c_uint32), ("shaderDemoteToHelperInvocation", c_uint32), ("shaderTerminateInvocation", c_uint32), ("subgroupSizeControl", c_uint32), ("computeFullSubgroups", c_uint32), ("synchronization2", c_uint32), ("textureCompressionASTC_HDR", c_uint32), ("shaderZeroInitializeWorkgroupMemory", c_uint32), ("dynamicRendering", c_uint32), ("shaderIntegerDotProduct", c_uint32), ("maintenance4", c_uint32)]


class VkPhysicalDeviceMemoryBudgetPropertiesEXT(Structure):
    """`VkPhysicalDeviceMemoryBudgetPropertiesEXT` as the registry has it."""
    STYPE = 1000237000
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("heapBudget", c_uint64 * 16), ("heapUsage", c_uint64 * 16)]


class VkPhysicalDeviceShaderSMBuiltinsPropertiesNV(Structure):
    """`VkPhysicalDeviceShaderSMBuiltinsPropertiesNV` as the registry has it."""
    STYPE = 1000154001
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("shaderSMCount", c_uint32), ("shaderWarpsPerSM", c_uint32)]


class VkExtensionProperties(Structure):
    """`VkExtensionProperties` as the registry has it."""
    _fields_ = [("extensionName", c_char * 256), ("specVersion", c_uint32)]


class VkMemoryAllocateInfo(Structure):
    """`VkMemoryAllocateInfo` as the registry has it."""
    STYPE = 5
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("allocationSize", c_uint64), ("memoryTypeIndex", c_uint32)]


class VkBufferCreateInfo(Structure):
    """`VkBufferCreateInfo` as the registry has it."""
    STYPE = 12
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("flags", c_uint32), ("size", c_uint64), ("usage", c_uint32), ("sharingMode", c_int32), ("queueFamilyIndexCount", c_uint32), ("pQueueFamilyIndices", c_void_p)]


class VkShaderModuleCreateInfo(Structure):
    """`VkShaderModuleCreateInfo` as the registry has it."""
    STYPE = 16
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("flags", c_uint32), ("codeSize", c_size_t), ("pCode", c_void_p)]


class VkPipelineCacheCreateInfo(Structure):
    """`VkPipelineCacheCreateInfo` as the registry has it."""
    STYPE = 17
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("flags", c_uint32), ("initialDataSize", c_size_t), ("pInitialData", c_void_p)]


class VkPipelineShaderStageCreateInfo(Structure):
    """`VkPipelineShaderStageCreateInfo` as the registry has it."""
    STYPE = 18
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("flags", c_uint32), ("stage", c_int32), ("module", c_uint64), ("pName", c_void_p), ("pSpecializationInfo", c_void_p)]


class VkComputePipelineCreateInfo(Structure):
    """`VkComputePipelineCreateInfo` as the registry has it."""
    STYPE = 29
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("flags", c_uint32), ("stage", VkPipelineShaderStageCreateInfo), ("layout", c_uint64), ("basePipelineHandle", c_uint64), ("basePipelineIndex", c_int32)]


class VkPipelineShaderStageRequiredSubgroupSizeCreateInfo(Structure):
    """`VkPipelineShaderStageRequiredSubgroupSizeCreateInfo` as the registry has it."""
    STYPE = 1000225001
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("requiredSubgroupSize", c_uint32)]


class VkPipelineLayoutCreateInfo(Structure):
    """`VkPipelineLayoutCreateInfo` as the registry has it."""
    STYPE = 30
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("flags", c_uint32), ("setLayoutCount", c_uint32), ("pSetLayouts", c_void_p), ("pushConstantRangeCount", c_uint32), ("pPushConstantRanges", c_void_p)]


class VkPushConstantRange(Structure):
    """`VkPushConstantRange` as the registry has it."""
    _fields_ = [("stageFlags", c_uint32), ("offset", c_uint32), ("size", c_uint32)]


class VkDescriptorSetLayoutCreateInfo(Structure):
    """`VkDescriptorSetLayoutCreateInfo` as the registry has it."""
    STYPE = 32
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("flags", c_uint32), ("bindingCount", c_uint32), ("pBindings", c_void_p)]


class VkDescriptorSetLayoutBinding(Structure):
    """`VkDescriptorSetLayoutBinding` as the registry has it."""
    _fields_ = [("binding", c_uint32), ("descriptorType", c_int32), ("descriptorCount", c_uint32), ("stageFlags", c_uint32), ("pImmutableSamplers", c_void_p)]


class VkDescriptorPoolCreateInfo(Structure):
    """`VkDescriptorPoolCreateInfo` as the registry has it."""
    STYPE = 33
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("flags", c_uint32), ("maxSets", c_uint32), ("poolSizeCount", c_uint32), ("pPoolSizes", c_void_p)]


class VkDescriptorPoolSize(Structure):
    """`VkDescriptorPoolSize` as the registry has it."""
    _fields_ = [("type", c_int32), ("descriptorCount", c_uint32)]


class VkDescriptorSetAllocateInfo(Structure):
    """`VkDescriptorSetAllocateInfo` as the registry has it."""
    STYPE = 34
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("descriptorPool", c_uint64), ("descriptorSetCount", c_uint32), ("pSetLayouts", c_void_p)]


class VkDescriptorBufferInfo(Structure):
    """`VkDescriptorBufferInfo` as the registry has it."""
    _fields_ = [("buffer", c_uint64), ("offset", c_uint64), ("range", c_uint64)]


class VkWriteDescriptorSet(Structure):
    """`VkWriteDescriptorSet` as the registry has it."""
    STYPE = 35
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("dstSet", c_uint64), ("dstBinding", c_uint32), ("dstArrayElement", c_uint32), ("descriptorCount", c_uint32), ("descriptorType", c_int32), ("pImageInfo", c_void_p), ("pBufferInfo", c_void_p), ("pTexelBufferView", c_void_p)]


class VkCommandPoolCreateInfo(Structure):
    """`VkCommandPoolCreateInfo` as the registry has it."""
    STYPE = 39
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("flags", c_uint32), ("queueFamilyIndex", c_uint32)]


class VkCommandBufferAllocateInfo(Structure):
    """`VkCommandBufferAllocateInfo` as the registry has it."""
    STYPE = 40
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("commandPool", c_uint64), ("level", c_int32), ("commandBufferCount", c_uint32)]


class VkCommandBufferBeginInfo(Structure):
    """`VkCommandBufferBeginInfo` as the registry has it."""
    STYPE = 42
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("flags", c_uint32), ("pInheritanceInfo", c_void_p)]


class VkBufferCopy(Structure):
    """`VkBufferCopy` as the registry has it."""
    _fields_ = [("srcOffset", c_uint64), ("dstOffset", c_uint64), ("size", c_uint64)]


class VkMemoryBarrier2(Structure):
    """`VkMemoryBarrier2` as the registry has it."""
    STYPE = 1000314000
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("srcStageMask", c_uint64), ("srcAccessMask", c_uint64), ("dstStageMask", c_uint64), ("dstAccessMask", c_uint64)]


class VkDependencyInfo(Structure):
    """`VkDependencyInfo` as the registry has it."""
    STYPE = 1000314003
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("dependencyFlags", c_uint32), ("memoryBarrierCount", c_uint32), ("pMemoryBarriers", c_void_p), ("bufferMemoryBarrierCount", c_uint32), ("pBufferMemoryBarriers", c_void_p), ("imageMemoryBarrierCount", c_uint32), ("pImageMemoryBarriers", c_void_p)]


class VkQueryPoolCreateInfo(Structure):
    """`VkQueryPoolCreateInfo` as the registry has it."""
    STYPE = 11
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("flags", c_uint32), ("queryType", c_int32), ("queryCount", c_uint32), ("pipelineStatistics", c_uint32)]


class VkSubmitInfo2(Structure):
    """`VkSubmitInfo2` as the registry has it."""
    STYPE = 1000314004
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("flags", c_uint32), ("waitSemaphoreInfoCount", c_uint32), ("pWaitSemaphoreInfos", c_void_p), ("commandBufferInfoCount", c_uint32), ("pCommandBufferInfos", c_void_p), ("signalSemaphoreInfoCount", c_uint32), ("pSignalSemaphoreInfos", c_void_p)]


class VkCommandBufferSubmitInfo(Structure):
    """`VkCommandBufferSubmitInfo` as the registry has it."""
    STYPE = 1000314006
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("commandBuffer", c_void_p), ("deviceMask", c_uint32)]


class VkSemaphoreSubmitInfo(Structure):
    """`VkSemaphoreSubmitInfo` as the registry has it."""
    STYPE = 1000314005
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("semaphore", c_uint64), ("value", c_uint64), ("stageMask", c_uint64), ("deviceIndex", c_uint32)]


class VkSemaphoreCreateInfo(Structure):
    """`VkSemaphoreCreateInfo` as the registry has it."""
    STYPE = 9
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("flags", c_uint32)]


class VkSemaphoreTypeCreateInfo(Structure):
    """`VkSemaphoreTypeCreateInfo` as the registry has it."""
    STYPE = 1000207002
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("semaphoreType", c_int32), ("initialValue", c_uint64)]


class VkSemaphoreWaitInfo(Structure):
    """`VkSemaphoreWaitInfo` as the registry has it."""
    STYPE = 1000207004
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("flags", c_uint32), ("semaphoreCount", c_uint32), ("pSemaphores", c_void_p), ("pValues", c_void_p)]


class VkMemoryType(Structure):
    """`VkMemoryType` as the registry has it."""
    _fields_ = [("propertyFlags", c_uint32), ("heapIndex", c_uint32)]


class VkMemoryHeap(Structure):
    """`VkMemoryHeap` as the registry has it."""
    _fields_ = [("size", c_uint64), ("flags", c_uint32)]


class VkPhysicalDeviceMemoryProperties(Structure):
    """`VkPhysicalDeviceMemoryProperties` as the registry has it."""
    _fields_ = [("memoryTypeCount", c_uint32), ("memoryTypes", VkMemoryType * 32), ("memoryHeapCount", c_uint32), ("memoryHeaps", VkMemoryHeap * 16)]


class VkPhysicalDeviceMemoryProperties2(Structure):
    """`VkPhysicalDeviceMemoryProperties2` as the registry has it."""
    STYPE = 1000059006
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("memoryProperties", VkPhysicalDeviceMemoryProperties)]


class VkMemoryRequirements(Structure):
    """`VkMemoryRequirements` as the registry has it."""
    _fields_ = [("size", c_uint64), ("alignment", c_uint64), ("memoryTypeBits", c_uint32)]


class VkExtent3D(Structure):
    """`VkExtent3D` as the registry has it."""
    _fields_ = [("width", c_uint32), ("height", c_uint32), ("depth", c_uint32)]


class VkQueueFamilyProperties(Structure):
    """`VkQueueFamilyProperties` as the registry has it."""
    _fields_ = [("queueFlags", c_uint32), ("queueCount", c_uint32), ("timestampValidBits", c_uint32), ("minImageTransferGranularity", VkExtent3D)]


class VkMemoryAllocateFlagsInfo(Structure):
    """`VkMemoryAllocateFlagsInfo` as the registry has it."""
    STYPE = 1000060000
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("flags", c_uint32), ("deviceMask", c_uint32)]


class VkBufferDeviceAddressInfo(Structure):
    """`VkBufferDeviceAddressInfo` as the registry has it."""
    STYPE = 1000244001
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("buffer", c_uint64)]


# VK_KHR_cooperative_matrix came after the registry that Debian 12 ships (1.3.239).
class VkPhysicalDeviceCooperativeMatrixFeaturesKHR(Structure):
    """Which of the extension's features are there, or are wanted."""

    STYPE = 1000506000
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("cooperativeMatrix", c_uint32), ("cooperativeMatrixRobustBufferAccess", c_uint32)]


class VkCooperativeMatrixPropertiesKHR(Structure):
    """One size and type of product that the device has."""

    STYPE = 1000506001
    _fields_ = [("sType", c_int32), ("pNext", c_void_p), ("MSize", c_uint32), ("NSize", c_uint32), ("KSize", c_uint32), ("AType", c_int32), ("BType", c_int32), ("CType", c_int32), ("ResultType", c_int32), ("saturatingAccumulation", c_uint32), ("scope", c_int32)]


FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "vkCreateInstance": (c_int32, (c_void_p, c_void_p, c_void_p,)),
    "vkDestroyInstance": (None, (c_void_p, c_void_p,)),
    "vkEnumerateInstanceVersion": (c_int32, (c_void_p,)),
    "vkEnumeratePhysicalDevices": (c_int32, (c_void_p, c_void_p, c_void_p,)),
    "vkGetPhysicalDeviceProperties2": (None, (c_void_p, c_void_p,)),
    "vkGetPhysicalDeviceFeatures2": (None, (c_void_p, c_void_p,)),
    "vkGetPhysicalDeviceQueueFamilyProperties": (None, (c_void_p, c_void_p, c_void_p,)),
    "vkGetPhysicalDeviceMemoryProperties2": (None, (c_void_p, c_void_p,)),
    "vkEnumerateDeviceExtensionProperties": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p,)),
    "vkGetInstanceProcAddr": (c_void_p, (c_void_p, c_void_p,)),
    "vkCreateDevice": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p,)),
    "vkDestroyDevice": (None, (c_void_p, c_void_p,)),
    "vkGetDeviceQueue": (None, (c_void_p, c_uint32, c_uint32, c_void_p,)),
    "vkDeviceWaitIdle": (c_int32, (c_void_p,)),
    "vkAllocateMemory": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p,)),
    "vkFreeMemory": (None, (c_void_p, c_uint64, c_void_p,)),
    "vkMapMemory": (c_int32, (c_void_p, c_uint64, c_uint64, c_uint64, c_uint32, c_void_p,)),
    "vkCreateBuffer": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p,)),
    "vkDestroyBuffer": (None, (c_void_p, c_uint64, c_void_p,)),
    "vkBindBufferMemory": (c_int32, (c_void_p, c_uint64, c_uint64, c_uint64,)),
    "vkGetBufferMemoryRequirements": (None, (c_void_p, c_uint64, c_void_p,)),
    "vkCreateShaderModule": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p,)),
    "vkDestroyShaderModule": (None, (c_void_p, c_uint64, c_void_p,)),
    "vkCreatePipelineCache": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p,)),
    "vkDestroyPipelineCache": (None, (c_void_p, c_uint64, c_void_p,)),
    "vkGetPipelineCacheData": (c_int32, (c_void_p, c_uint64, c_void_p, c_void_p,)),
    "vkCreateComputePipelines": (c_int32, (c_void_p, c_uint64, c_uint32, c_void_p, c_void_p, c_void_p,)),
    "vkDestroyPipeline": (None, (c_void_p, c_uint64, c_void_p,)),
    "vkCreatePipelineLayout": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p,)),
    "vkDestroyPipelineLayout": (None, (c_void_p, c_uint64, c_void_p,)),
    "vkCreateDescriptorSetLayout": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p,)),
    "vkDestroyDescriptorSetLayout": (None, (c_void_p, c_uint64, c_void_p,)),
    "vkCreateDescriptorPool": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p,)),
    "vkDestroyDescriptorPool": (None, (c_void_p, c_uint64, c_void_p,)),
    "vkAllocateDescriptorSets": (c_int32, (c_void_p, c_void_p, c_void_p,)),
    "vkUpdateDescriptorSets": (None, (c_void_p, c_uint32, c_void_p, c_uint32, c_void_p,)),
    "vkCreateCommandPool": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p,)),
    "vkDestroyCommandPool": (None, (c_void_p, c_uint64, c_void_p,)),
    "vkAllocateCommandBuffers": (c_int32, (c_void_p, c_void_p, c_void_p,)),
    "vkFreeCommandBuffers": (None, (c_void_p, c_uint64, c_uint32, c_void_p,)),
    "vkBeginCommandBuffer": (c_int32, (c_void_p, c_void_p,)),
    "vkEndCommandBuffer": (c_int32, (c_void_p,)),
    "vkResetCommandBuffer": (c_int32, (c_void_p, c_uint32,)),
    "vkCmdBindPipeline": (None, (c_void_p, c_int32, c_uint64,)),
    "vkCmdBindDescriptorSets": (None, (c_void_p, c_int32, c_uint64, c_uint32, c_uint32, c_void_p, c_uint32, c_void_p,)),
    "vkCmdPushConstants": (None, (c_void_p, c_uint64, c_uint32, c_uint32, c_uint32, c_void_p,)),
    "vkCmdDispatch": (None, (c_void_p, c_uint32, c_uint32, c_uint32,)),
    "vkCmdCopyBuffer": (None, (c_void_p, c_uint64, c_uint64, c_uint32, c_void_p,)),
    "vkCmdFillBuffer": (None, (c_void_p, c_uint64, c_uint64, c_uint64, c_uint32,)),
    "vkCmdPipelineBarrier2": (None, (c_void_p, c_void_p,)),
    "vkCmdWriteTimestamp2": (None, (c_void_p, c_uint64, c_uint64, c_uint32,)),
    "vkCmdResetQueryPool": (None, (c_void_p, c_uint64, c_uint32, c_uint32,)),
    "vkCreateQueryPool": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p,)),
    "vkDestroyQueryPool": (None, (c_void_p, c_uint64, c_void_p,)),
    "vkGetQueryPoolResults": (c_int32, (c_void_p, c_uint64, c_uint32, c_uint32, c_size_t, c_void_p, c_uint64, c_uint32,)),
    "vkQueueSubmit2": (c_int32, (c_void_p, c_uint32, c_void_p, c_uint64,)),
    "vkCreateSemaphore": (c_int32, (c_void_p, c_void_p, c_void_p, c_void_p,)),
    "vkDestroySemaphore": (None, (c_void_p, c_uint64, c_void_p,)),
    "vkWaitSemaphores": (c_int32, (c_void_p, c_void_p, c_uint64,)),
    "vkGetSemaphoreCounterValue": (c_int32, (c_void_p, c_uint64, c_void_p,)),
    "vkGetBufferDeviceAddress": (c_uint64, (c_void_p, c_void_p,)),
}
"""Result and parameters of each function of the loader."""

EXTENSION_FUNCTIONS = ("vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR",)

RESULTS: dict[int, str] = {
    -1: "VK_ERROR_OUT_OF_HOST_MEMORY",
    -2: "VK_ERROR_OUT_OF_DEVICE_MEMORY",
    -3: "VK_ERROR_INITIALIZATION_FAILED",
    -4: "VK_ERROR_DEVICE_LOST",
    -5: "VK_ERROR_MEMORY_MAP_FAILED",
    -6: "VK_ERROR_LAYER_NOT_PRESENT",
    -7: "VK_ERROR_EXTENSION_NOT_PRESENT",
    -8: "VK_ERROR_FEATURE_NOT_PRESENT",
    -9: "VK_ERROR_INCOMPATIBLE_DRIVER",
    -10: "VK_ERROR_TOO_MANY_OBJECTS",
    -11: "VK_ERROR_FORMAT_NOT_SUPPORTED",
    -12: "VK_ERROR_FRAGMENTED_POOL",
    -13: "VK_ERROR_UNKNOWN",
    -1000069000: "VK_ERROR_OUT_OF_POOL_MEMORY",
    -1000072003: "VK_ERROR_INVALID_EXTERNAL_HANDLE",
    -1000161000: "VK_ERROR_FRAGMENTATION",
    -1000257000: "VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS",
}
"""Names of the results that are errors."""
